//! Element-wise operators as C expressions.

use super::Kind;
use graph::{Binary, Function, Unary};

/// A single-precision literal that keeps every bit.
pub(crate) fn literal_f32(value: f32) -> String {
    format!("__int_as_float(0x{:08x})", value.to_bits())
}

/// A literal of the type `kind` is computed in.
pub(crate) fn literal(kind: Kind, value: f64) -> String {
    match kind {
        Kind::F64 => format!("__longlong_as_double(0x{:016x}LL)", value.to_bits()),
        Kind::F16 | Kind::Bf16 | Kind::F32 => literal_f32(single(value)),
        Kind::Bool => if value == 0.0 { "false" } else { "true" }.to_owned(),
        _ => format!("((long long){value:.0}LL)"),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the constant was single precision before")]
pub(crate) const fn single(value: f64) -> f32 {
    value as f32
}

/// `unary` of `x`, which is computed in the type of `kind`.
pub(crate) fn unary(unary: Unary, kind: Kind, x: &str) -> String {
    match unary {
        Unary::Plain(function) => plain(function, kind, x),
        Unary::LeakyRelu { alpha } => format!("({x} > 0 ? {x} : {} * {x})", literal_f32(alpha)),
        Unary::PowConst { exponent } => power(x, &literal_f32(exponent), Some(f64::from(exponent))),
    }
}

fn plain(function: Function, kind: Kind, x: &str) -> String {
    let call = |name: &str| format!("{name}({x})");
    let one = if kind == Kind::F64 { "1.0" } else { "1.f" };
    match function {
        Function::Relu => format!("({x} < 0 ? 0 : {x})"),
        Function::Abs => {
            if kind.is_float() {
                call("fabs")
            } else {
                format!("({x} < 0 ? -{x} : {x})")
            }
        }
        Function::Exp => call("exp"),
        Function::Ln => call("log"),
        Function::Square => format!("({x} * {x})"),
        Function::Sqrt => call("sqrt"),
        Function::Rsqrt => call("rsqrt"),
        Function::Recip => format!("({one} / {x})"),
        Function::Neg => format!("(-{x})"),
        Function::Sign => format!("({x} > 0 ? 1 : {x} < 0 ? -1 : 0)"),
        Function::Ceil => call("ceil"),
        Function::Floor => call("floor"),
        Function::Round => call("round"),
        Function::RoundHalfToEven => call("rint"),
        Function::Sin => call("sin"),
        Function::Cos => call("cos"),
        Function::Tan => call("tan"),
        Function::Asin => call("asin"),
        Function::Acos => call("acos"),
        Function::Atan => call("atan"),
        Function::Sinh => call("sinh"),
        Function::Cosh => call("cosh"),
        Function::Tanh => call("tanh"),
        Function::Asinh => call("asinh"),
        Function::Acosh => call("acosh"),
        Function::Atanh => call("atanh"),
        Function::Erf => call("erf"),
        Function::Sigmoid => format!("({one} / ({one} + exp(-{x})))"),
        Function::Silu => format!("({x} / ({one} + exp(-{x})))"),
        Function::HardSwish => format!("({x} * fmin(fmax({x} / 6.f + 0.5f, 0.f), 1.f))"),
        Function::Gelu => format!("(0.5f * {x} * (1.f + erf({x} * 0.70710678118654752f)))"),
        Function::GeluTanh => gelu_tanh(x),
        Function::IsNan => format!("({x} != {x})"),
        Function::Not => format!("(!{x})"),
        Function::BitNot => format!("(~{x})"),
    }
}

pub(crate) fn gelu_tanh(x: &str) -> String {
    format!("(0.5f * {x} * (1.f + tanh(0.79788456080286536f * ({x} + 0.044715f * {x} * {x} * {x}))))")
}

fn power(x: &str, exponent: &str, known: Option<f64>) -> String {
    match known {
        Some(2.0) => format!("({x} * {x})"),
        Some(3.0) => format!("({x} * {x} * {x})"),
        Some(0.5) => format!("sqrt({x})"),
        Some(-1.0) => format!("(1 / {x})"),
        _ => format!("pow({x}, {exponent})"),
    }
}

/// `binary` of `a` and `b`, computed in the type of `kind`; `right` is `b` when it is a constant.
pub(crate) fn binary(binary: Binary, kind: Kind, a: &str, b: &str, right: Option<f64>) -> String {
    let infix = |sign: &str| format!("({a} {sign} {b})");
    match binary {
        Binary::Add => infix("+"),
        Binary::Sub => infix("-"),
        Binary::Mul => infix("*"),
        Binary::Div => infix("/"),
        Binary::Rem if kind.is_float() => format!("fmod({a}, {b})"),
        Binary::Rem => infix("%"),
        Binary::Min => format!("({a} < {b} ? {a} : {b})"),
        Binary::Max => format!("({a} > {b} ? {a} : {b})"),
        Binary::Pow => power(a, b, right),
        Binary::And => infix("&&"),
        Binary::Or => infix("||"),
        Binary::Xor => format!("((bool){a} != (bool){b})"),
        Binary::BitAnd => infix("&"),
        Binary::BitOr => infix("|"),
        Binary::BitXor => infix("^"),
        Binary::ShiftLeft => infix("<<"),
        Binary::ShiftRight => infix(">>"),
        Binary::Equal => infix("=="),
        Binary::NotEqual => infix("!="),
        Binary::Less => infix("<"),
        Binary::LessEqual => infix("<="),
        Binary::Greater => infix(">"),
        Binary::GreaterEqual => infix(">="),
    }
}
