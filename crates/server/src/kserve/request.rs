//! Reads an infer request as HTTP carries it: JSON, or JSON followed by the bytes of the tensors.
//!
//! Nothing here knows the model (but for raw bodies, which have no JSON at all). Names, counts and nesting are bounded
//! before anything is kept, and tensor data stays a slice of the body.

use super::call::{Asked, AskedInput, AskedOutput, Data, Parameter, port_shape_text};
use super::error::CallError;
use super::numbers::shown;
use graph::Dim;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

use crate::live::ModelInfo;

/// The header that tells how many bytes of the body are JSON.
pub const HEADER_LENGTH: &str = "inference-header-content-length";

/// Nesting allowed anywhere in the JSON; a request needs about ten.
const DEPTH_MAX: usize = 64;
/// Longest name, id or text parameter, in bytes.
const TEXT_MAX: usize = 1024;
/// Most inputs, outputs and parameters of one list.
const ENTRIES_MAX: usize = 256;
/// Most dimensions of a shape.
const RANK_MAX: usize = 32;

/// Reads `body`, whose first `json_len` bytes are JSON (all of it when `None`) and whose rest are the binary tensors
/// in the order of the inputs.
///
/// # Errors
/// When the JSON is not a request or the binary sizes do not add up to the body.
pub fn parse(body: &[u8], json_len: Option<usize>) -> Result<Asked<'_>, CallError> {
    let claimed = json_len.unwrap_or(body.len());
    let Some((json, binary)) = body.split_at_checked(claimed) else {
        return Err(CallError::HeaderLength { claimed, body: body.len() });
    };
    let text = std::str::from_utf8(json).map_err(|error| CallError::Json { why: error.to_string() })?;
    check_depth(text)?;
    let Object(wire): Object<WireRequest<'_>> = serde_json::from_str(text)
        .map_err(|error| CallError::Json { why: error.to_string().chars().take(200).collect() })?;
    let mut left = binary;
    let inputs =
        wire.inputs.0.into_iter().map(|input| take_input(input.0, &mut left)).collect::<Result<_, _>>()?;
    if !left.is_empty() {
        return Err(CallError::BinaryLeft { extra: left.len() });
    }
    let outputs = wire
        .outputs
        .map(|outputs| outputs.0.into_iter().map(|output| take_output(output.0)).collect::<Result<_, _>>());
    Ok(Asked {
        id: wire.id.map(|id| id.0.into_owned()).filter(|id| !id.is_empty()),
        inputs,
        outputs: outputs.transpose()?,
        parameters: wire.parameters.0,
    })
}

/// Reads a body that is nothing but the bytes of the only input of `model`: one row, at most one free dimension.
///
/// # Errors
/// When the model has another number of inputs, or the shape cannot be told from the length.
pub fn parse_raw<'a>(body: &'a [u8], model: &ModelInfo) -> Result<Asked<'a>, CallError> {
    let [port] = model.inputs.as_slice() else {
        return Err(CallError::RawInputs { model: model.name.clone(), inputs: model.inputs.len() });
    };
    let unknown = || CallError::RawShape { input: port.name.clone(), expected: port_shape_text(&port.shape) };
    let fixed = port.shape.iter().try_fold(port.dtype.size(), |bytes, dim| match dim {
        Dim::Fixed(size) => bytes.checked_mul(*size),
        Dim::Batch | Dim::Free(_) => Some(bytes),
    });
    let free = port.shape.iter().filter(|dim| matches!(dim, Dim::Free(_))).count();
    let stride = fixed.filter(|bytes| *bytes > 0).ok_or_else(unknown)?;
    if free > 1 || (free == 1 && !body.len().is_multiple_of(stride)) {
        return Err(unknown());
    }
    let shape = port.shape.iter().map(|dim| match dim {
        Dim::Fixed(size) => i64::try_from(*size).unwrap_or(i64::MAX),
        Dim::Batch => 1,
        Dim::Free(_) => i64::try_from(body.len() / stride).unwrap_or(i64::MAX),
    });
    let input = AskedInput {
        name: Cow::Owned(port.name.clone()),
        datatype: Cow::Borrowed(port.dtype.kserve()),
        shape: shape.collect(),
        data: Data::Raw(body),
    };
    let parameters = vec![("binary_data_output".into(), Parameter::Bool(true))];
    Ok(Asked { id: None, inputs: vec![input], outputs: None, parameters })
}

/// Refuses JSON nested deeper than [`DEPTH_MAX`], before a parser meets it.
fn check_depth(text: &str) -> Result<(), CallError> {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in text.bytes() {
        if in_string {
            in_string = escaped || byte != b'"';
            escaped = byte == b'\\' && !escaped;
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH_MAX {
            return Err(CallError::Depth { limit: DEPTH_MAX });
        }
    }
    Ok(())
}

fn take_input<'a>(input: WireInput<'a>, left: &mut &'a [u8]) -> Result<AskedInput<'a>, CallError> {
    let name = input.name.0;
    let mut binary_size = None;
    for (parameter, value) in &input.parameters.0 {
        match (parameter.as_ref(), value) {
            ("binary_data_size", Parameter::Int(size)) => binary_size = u64::try_from(*size).ok(),
            ("binary_data_size", _) => {}
            (other, _) if other.starts_with("shared_memory") => {
                return Err(CallError::SharedMemory { name: name.into_owned() });
            }
            _ => continue,
        }
        if binary_size.is_none() {
            let expected = "a whole number of bytes, 0 or more";
            return Err(CallError::Parameter { name: "binary_data_size".into(), expected });
        }
    }
    let data = match (input.data, binary_size) {
        (Some(_), Some(_)) => return Err(CallError::TwoData { input: name.into_owned() }),
        (None, None) => return Err(CallError::NoData { input: name.into_owned() }),
        (Some(json), None) => Data::Json(json.get()),
        (None, Some(claimed)) => {
            let split = usize::try_from(claimed).ok().and_then(|size| left.split_at_checked(size));
            let Some((bytes, rest)) = split else {
                return Err(CallError::BinaryBeyond { input: name.into_owned(), claimed, left: left.len() });
            };
            *left = rest;
            Data::Raw(bytes)
        }
    };
    Ok(AskedInput { name, datatype: input.datatype.0, shape: input.shape.0, data })
}

fn take_output(output: WireOutput<'_>) -> Result<AskedOutput<'_>, CallError> {
    let name = output.name.0;
    let (mut binary, mut classes) = (None, 0);
    for (parameter, value) in &output.parameters.0 {
        match (parameter.as_ref(), value) {
            ("binary_data", Parameter::Bool(wanted)) => binary = Some(*wanted),
            ("classification", Parameter::Int(count)) if u32::try_from(*count).is_ok() => {
                classes = u32::try_from(*count).unwrap_or(0);
            }
            ("binary_data", _) => {
                return Err(CallError::Parameter { name: "binary_data".into(), expected: "true or false" });
            }
            ("classification", _) => {
                let expected = "a whole number of classes, 0 or more";
                return Err(CallError::Parameter { name: "classification".into(), expected });
            }
            (other, _) if other.starts_with("shared_memory") => {
                return Err(CallError::SharedMemory { name: name.into_owned() });
            }
            _ => {}
        }
    }
    Ok(AskedOutput { name, binary, classes })
}

#[derive(Deserialize)]
struct WireRequest<'a> {
    #[serde(borrow, default)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    inputs: Bounded<Object<WireInput<'a>>, ENTRIES_MAX>,
    #[serde(borrow, default)]
    outputs: Option<Bounded<Object<WireOutput<'a>>, ENTRIES_MAX>>,
    #[serde(borrow, default)]
    parameters: Parameters<'a>,
}

#[derive(Deserialize)]
struct WireInput<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    datatype: Text<'a>,
    shape: Bounded<i64, RANK_MAX>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
    #[serde(borrow, default)]
    parameters: Parameters<'a>,
}

#[derive(Deserialize)]
struct WireOutput<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow, default)]
    parameters: Parameters<'a>,
}

/// A struct written as an object; serde alone would take a list of its fields too.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Read<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Read<T> {
            type Value = T;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map))
            }
        }
        from.deserialize_map(Read(std::marker::PhantomData)).map(Self)
    }
}

/// A string of at most [`TEXT_MAX`] bytes without control characters: it comes back in errors and logs.
struct Text<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Read;
        impl Read {
            fn check<E: serde::de::Error>(&self, text: &str) -> Result<(), E> {
                if text.len() > TEXT_MAX {
                    return Err(E::invalid_length(text.len(), self));
                }
                if text.chars().any(char::is_control) {
                    Err(E::custom("a string has a control character"))
                } else {
                    Ok(())
                }
            }
        }
        impl<'de> Visitor<'de> for Read {
            type Value = Cow<'de, str>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a string of at most {TEXT_MAX} bytes")
            }
            fn visit_borrowed_str<E: serde::de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                self.check(text).map(|()| Cow::Borrowed(text))
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
                self.check(text).map(|()| Cow::Owned(text.into()))
            }
        }
        from.deserialize_str(Read).map(Self)
    }
}

/// A list of at most `MAX` entries.
struct Bounded<T, const MAX: usize>(Vec<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Bounded<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Read<T, const MAX: usize>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Read<T, MAX> {
            type Value = Vec<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of at most {MAX} entries")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = list.next_element()? {
                    if entries.len() == MAX {
                        return Err(A::Error::custom(format_args!("the list has more than {MAX} entries")));
                    }
                    entries.push(entry);
                }
                Ok(entries)
            }
        }
        from.deserialize_seq(Read::<T, MAX>(std::marker::PhantomData)).map(Self)
    }
}

/// A `parameters` object, in its order; a key given twice is an error.
#[derive(Default)]
struct Parameters<'a>(Vec<(Cow<'a, str>, Parameter<'a>)>);

impl<'de: 'a, 'a> Deserialize<'de> for Parameters<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Vec<(Cow<'de, str>, Parameter<'de>)>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of parameters")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries: Self::Value = Vec::new();
                while let Some((Text(key), value)) = map.next_entry()? {
                    if entries.len() == ENTRIES_MAX {
                        return Err(A::Error::custom(format_args!("more than {ENTRIES_MAX} parameters")));
                    }
                    if entries.iter().any(|(known, _)| *known == key) {
                        return Err(A::Error::custom(format_args!(
                            "parameter {:?} is given twice",
                            shown(&key)
                        )));
                    }
                    entries.push((key, value));
                }
                Ok(entries)
            }
        }
        from.deserialize_map(Read).map(Self)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Parameter<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Parameter<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a parameter")
            }
            fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
                Ok(Parameter::Bool(value))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
                Ok(Parameter::Int(value.into()))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
                Ok(Parameter::Int(value.into()))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
                Ok(Parameter::Float(value))
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Parameter::Text(Cow::Borrowed(text)))
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Parameter::Text(Cow::Owned(text.chars().take(TEXT_MAX).collect())))
            }
            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Parameter::Other)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Parameter::Other)
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Parameter::Other)
            }
        }
        from.deserialize_any(Read)
    }
}
