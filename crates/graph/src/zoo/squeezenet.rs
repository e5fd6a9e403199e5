//! SqueezeNet 1.0 (Iandola et al., 2016): fire modules squeeze to few channels and expand by 1×1 and 3×3 kernels.

use super::CLASSES;
use super::builder::{Conv, Net, Pool, Wire};
use tract_onnx::pb::ModelProto;

/// Fire modules: place, squeezed channels, channels of each expansion. Poolings stand at the places between.
const FIRES: [[usize; 3]; 8] = [
    [3, 16, 64],
    [4, 16, 64],
    [5, 32, 128],
    [7, 32, 128],
    [8, 48, 192],
    [9, 48, 192],
    [10, 64, 256],
    [12, 64, 256],
];

/// Wires it.
pub(super) fn wire(mut net: Net) -> ModelProto {
    let input = net.input("input", &[3, 224, 224]);
    let pool = Pool::new(3, 2).rounding_up();
    let mut x = net.conv("features.0", &input, Conv::square(96, 7).stride(2));
    x = net.relu("features.1", &x);
    x = net.max_pool("features.2", &x, pool);
    for [at, squeezed, expanded] in FIRES {
        if at == 7 || at == 12 {
            x = net.max_pool(&format!("features.{}", at - 1), &x, pool);
        }
        x = fire(&mut net, &format!("features.{at}"), &x, squeezed, expanded);
    }
    x = net.conv("classifier.1", &x, Conv::square(CLASSES, 1));
    x = net.relu("classifier.2", &x);
    let logits = net.global_pool("classifier.3", &x);
    net.finish(&[("logits", &logits)])
}

fn fire(net: &mut Net, name: &str, x: &Wire, squeezed: usize, expanded: usize) -> Wire {
    let squeeze = conv_relu(net, &format!("{name}.squeeze"), x, Conv::square(squeezed, 1));
    let parts = [
        conv_relu(net, &format!("{name}.expand1x1"), &squeeze, Conv::square(expanded, 1)),
        conv_relu(net, &format!("{name}.expand3x3"), &squeeze, Conv::square(expanded, 3).pad(1)),
    ];
    net.concat(&format!("{name}.concat"), &parts)
}

fn conv_relu(net: &mut Net, name: &str, x: &Wire, conv: Conv) -> Wire {
    let made = net.conv(name, x, conv);
    net.relu(&format!("{name}_activation"), &made)
}
