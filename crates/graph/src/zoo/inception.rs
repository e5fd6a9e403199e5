//! Inception v3 (Szegedy et al., 2015) for inference: without the auxiliary classifier that helps training.

use super::CLASSES;
use super::builder::{Conv, Net, Pool, Wire};
use tract_onnx::pb::ModelProto;

const EPSILON: f32 = 1e-3;

/// Wires it.
pub(super) fn wire(mut net: Net) -> ModelProto {
    let input = net.input("input", &[3, 299, 299]);
    let mut x = unit(&mut net, "Conv2d_1a_3x3", &input, Conv::square(32, 3).stride(2));
    x = unit(&mut net, "Conv2d_2a_3x3", &x, Conv::square(32, 3));
    x = unit(&mut net, "Conv2d_2b_3x3", &x, Conv::square(64, 3).pad(1));
    x = net.max_pool("maxpool1", &x, Pool::new(3, 2));
    x = unit(&mut net, "Conv2d_3b_1x1", &x, Conv::square(80, 1));
    x = unit(&mut net, "Conv2d_4a_3x3", &x, Conv::square(192, 3));
    x = net.max_pool("maxpool2", &x, Pool::new(3, 2));
    x = mixed_a(&mut net, "Mixed_5b", &x, 32);
    x = mixed_a(&mut net, "Mixed_5c", &x, 64);
    x = mixed_a(&mut net, "Mixed_5d", &x, 64);
    x = mixed_b(&mut net, "Mixed_6a", &x);
    x = mixed_c(&mut net, "Mixed_6b", &x, 128);
    x = mixed_c(&mut net, "Mixed_6c", &x, 160);
    x = mixed_c(&mut net, "Mixed_6d", &x, 160);
    x = mixed_c(&mut net, "Mixed_6e", &x, 192);
    x = mixed_d(&mut net, "Mixed_7a", &x);
    x = mixed_e(&mut net, "Mixed_7b", &x);
    x = mixed_e(&mut net, "Mixed_7c", &x);
    x = net.global_pool("avgpool", &x);
    let logits = net.dense("fc", &x, CLASSES);
    net.finish(&[("logits", &logits)])
}

/// 35×35: 1×1, 5×5, double 3×3, pooling.
fn mixed_a(net: &mut Net, name: &str, x: &Wire, pooled: usize) -> Wire {
    let parts = [
        chain(net, name, x, &[("branch1x1", keeping(64, 1, 1))]),
        chain(net, name, x, &[("branch5x5_1", keeping(48, 1, 1)), ("branch5x5_2", keeping(64, 5, 5))]),
        chain(
            net,
            name,
            x,
            &[
                ("branch3x3dbl_1", keeping(64, 1, 1)),
                ("branch3x3dbl_2", keeping(96, 3, 3)),
                ("branch3x3dbl_3", keeping(96, 3, 3)),
            ],
        ),
        pooled_branch(net, name, x, pooled),
    ];
    net.concat(&format!("{name}.concat"), &parts)
}

/// 35×35 to 17×17: strided 3×3, strided double 3×3, pooling.
fn mixed_b(net: &mut Net, name: &str, x: &Wire) -> Wire {
    let halving = |channels| Conv::square(channels, 3).stride(2);
    let parts = [
        chain(net, name, x, &[("branch3x3", halving(384))]),
        chain(
            net,
            name,
            x,
            &[
                ("branch3x3dbl_1", keeping(64, 1, 1)),
                ("branch3x3dbl_2", keeping(96, 3, 3)),
                ("branch3x3dbl_3", halving(96)),
            ],
        ),
        net.max_pool(&format!("{name}.branch_pool"), x, Pool::new(3, 2)),
    ];
    net.concat(&format!("{name}.concat"), &parts)
}

/// 17×17: 7×7 split into rows and columns, `narrow` channels inside.
fn mixed_c(net: &mut Net, name: &str, x: &Wire, narrow: usize) -> Wire {
    let parts = [
        chain(net, name, x, &[("branch1x1", keeping(192, 1, 1))]),
        chain(
            net,
            name,
            x,
            &[
                ("branch7x7_1", keeping(narrow, 1, 1)),
                ("branch7x7_2", keeping(narrow, 1, 7)),
                ("branch7x7_3", keeping(192, 7, 1)),
            ],
        ),
        chain(
            net,
            name,
            x,
            &[
                ("branch7x7dbl_1", keeping(narrow, 1, 1)),
                ("branch7x7dbl_2", keeping(narrow, 7, 1)),
                ("branch7x7dbl_3", keeping(narrow, 1, 7)),
                ("branch7x7dbl_4", keeping(narrow, 7, 1)),
                ("branch7x7dbl_5", keeping(192, 1, 7)),
            ],
        ),
        pooled_branch(net, name, x, 192),
    ];
    net.concat(&format!("{name}.concat"), &parts)
}

/// 17×17 to 8×8: strided 3×3, split 7×7 with a strided 3×3, pooling.
fn mixed_d(net: &mut Net, name: &str, x: &Wire) -> Wire {
    let halving = |channels| Conv::square(channels, 3).stride(2);
    let parts = [
        chain(net, name, x, &[("branch3x3_1", keeping(192, 1, 1)), ("branch3x3_2", halving(320))]),
        chain(
            net,
            name,
            x,
            &[
                ("branch7x7x3_1", keeping(192, 1, 1)),
                ("branch7x7x3_2", keeping(192, 1, 7)),
                ("branch7x7x3_3", keeping(192, 7, 1)),
                ("branch7x7x3_4", halving(192)),
            ],
        ),
        net.max_pool(&format!("{name}.branch_pool"), x, Pool::new(3, 2)),
    ];
    net.concat(&format!("{name}.concat"), &parts)
}

/// 8×8: 3×3 kernels split into a row and a column side by side.
fn mixed_e(net: &mut Net, name: &str, x: &Wire) -> Wire {
    let single = chain(net, name, x, &[("branch3x3_1", keeping(384, 1, 1))]);
    let double = chain(
        net,
        name,
        x,
        &[("branch3x3dbl_1", keeping(448, 1, 1)), ("branch3x3dbl_2", keeping(384, 3, 3))],
    );
    let parts = [
        chain(net, name, x, &[("branch1x1", keeping(320, 1, 1))]),
        chain(net, name, &single, &[("branch3x3_2a", keeping(384, 1, 3))]),
        chain(net, name, &single, &[("branch3x3_2b", keeping(384, 3, 1))]),
        chain(net, name, &double, &[("branch3x3dbl_3a", keeping(384, 1, 3))]),
        chain(net, name, &double, &[("branch3x3dbl_3b", keeping(384, 3, 1))]),
        pooled_branch(net, name, x, 192),
    ];
    net.concat(&format!("{name}.concat"), &parts)
}

fn pooled_branch(net: &mut Net, name: &str, x: &Wire, channels: usize) -> Wire {
    let pooled = net.average_pool(&format!("{name}.pool"), x, Pool::new(3, 1).pad(1));
    chain(net, name, &pooled, &[("branch_pool", keeping(channels, 1, 1))])
}

fn chain(net: &mut Net, name: &str, x: &Wire, units: &[(&str, Conv)]) -> Wire {
    units.iter().fold(x.clone(), |x, (part, conv)| unit(net, &format!("{name}.{part}"), &x, *conv))
}

fn unit(net: &mut Net, name: &str, x: &Wire, conv: Conv) -> Wire {
    let made = net.conv(&format!("{name}.conv"), x, conv.without_bias());
    let normed = net.batch_norm(&format!("{name}.bn"), &made, EPSILON);
    net.relu(&format!("{name}.relu"), &normed)
}

const fn keeping(channels: usize, tall: usize, wide: usize) -> Conv {
    Conv::keeping_size(channels, [tall, wide])
}
