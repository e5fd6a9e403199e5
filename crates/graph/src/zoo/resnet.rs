//! ResNet (He et al., 2015) with the stride on the 3×3 convolution, and ResNeXt (Xie et al., 2016).

use super::CLASSES;
use super::builder::{Conv, Net, Pool, Wire};
use tract_onnx::pb::ModelProto;

/// A member of the family.
pub(super) struct Shape {
    /// Blocks a stage.
    depths: [usize; 4],
    /// Blocks of three convolutions that narrow and widen, instead of two plain ones.
    bottleneck: bool,
    /// Groups of the 3×3 convolution.
    groups: usize,
    /// Channels a group of the 3×3 convolution has in the first stage.
    group_width: usize,
}

/// 18 layers.
pub(super) const RESNET18: Shape =
    Shape { depths: [2, 2, 2, 2], bottleneck: false, groups: 1, group_width: 64 };

/// 50 layers.
pub(super) const RESNET50: Shape = Shape { depths: [3, 4, 6, 3], bottleneck: true, ..RESNET18 };

/// 101 layers.
pub(super) const RESNET101: Shape = Shape { depths: [3, 4, 23, 3], ..RESNET50 };

/// 152 layers.
pub(super) const RESNET152: Shape = Shape { depths: [3, 8, 36, 3], ..RESNET50 };

/// 50 layers, 32 groups of 4 channels.
pub(super) const RESNEXT50: Shape = Shape { groups: 32, group_width: 4, ..RESNET50 };

const EPSILON: f32 = 1e-5;

/// Wires it.
pub(super) fn wire(mut net: Net, shape: &Shape) -> ModelProto {
    let input = net.input("input", &[3, 224, 224]);
    let mut x = net.conv("conv1", &input, Conv::square(64, 7).stride(2).pad(3).without_bias());
    x = net.batch_norm("bn1", &x, EPSILON);
    x = net.relu("relu", &x);
    x = net.max_pool("maxpool", &x, Pool::new(3, 2).pad(1));
    for (stage, (depth, planes)) in shape.depths.into_iter().zip([64, 128, 256, 512]).enumerate() {
        for block in 0..depth {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            x = self::block(&mut net, &format!("layer{}.{block}", stage + 1), &x, shape, planes, stride);
        }
    }
    x = net.global_pool("avgpool", &x);
    let logits = net.dense("fc", &x, CLASSES);
    net.finish(&[("logits", &logits)])
}

fn block(net: &mut Net, name: &str, x: &Wire, shape: &Shape, planes: usize, stride: usize) -> Wire {
    let width = planes * shape.group_width / 64 * shape.groups;
    let middle = Conv::square(width, 3).pad(1).groups(shape.groups);
    let convs = if shape.bottleneck {
        vec![Conv::square(width, 1), middle.stride(stride), Conv::square(planes * 4, 1)]
    } else {
        vec![middle.stride(stride), middle]
    };
    let last = convs.len();
    let mut branch = x.clone();
    for (at, conv) in (1..).zip(convs) {
        branch = net.conv(&format!("{name}.conv{at}"), &branch, conv.without_bias());
        branch = net.batch_norm(&format!("{name}.bn{at}"), &branch, EPSILON);
        if at < last {
            branch = net.relu(&format!("{name}.relu{at}"), &branch);
        }
    }
    let identity = branch.dims == x.dims;
    let shortcut = if identity { x.clone() } else { project(net, name, x, branch.dims[0], stride) };
    let sum = net.add(&format!("{name}.add"), &branch, &shortcut);
    let made = net.relu(&format!("{name}.relu"), &sum);
    // An identity is positive already: the activation takes from the branch alone.
    let power = if identity { shortcut.power + branch.power * 0.5 } else { made.power };
    Wire { power, ..made }
}

fn project(net: &mut Net, name: &str, x: &Wire, channels: usize, stride: usize) -> Wire {
    let conv = Conv::square(channels, 1).stride(stride).without_bias();
    let projected = net.conv(&format!("{name}.downsample.0"), x, conv);
    net.batch_norm(&format!("{name}.downsample.1"), &projected, EPSILON)
}
