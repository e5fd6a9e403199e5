//! The zoo: the networks of the papers, built in Rust with seeded weights and written as ONNX.
//!
//! Architectures, weight shapes and names follow torchvision and Hugging Face, so that parameter and operation counts are
//! the published ones. Weights are random but scaled for signals of ordinary size at any depth: outputs mean nothing and
//! still compare well between engines. The batch is symbolic (`N`); everything else is fixed in the file.
//!
//! Images go in as `input` and come out as `logits`. A new network is a file here, an entry in [`names`] and [`build`],
//! and its published numbers in `tests/zoo/published.rs`.

mod alexnet;
mod bert;
mod builder;
mod densenet;
mod gpt2;
mod inception;
mod mobilenet;
mod proto;
mod resnet;
mod squeezenet;
mod tiny;
mod transformer;
mod vgg;
mod vit;

use builder::Net;
use prost::Message;
use std::path::{Path, PathBuf};
use tract_onnx::pb::ModelProto;

/// Every network, the three tiny ones for tests last.
const NAMES: [&str; 18] = [
    "alexnet",
    "vgg16",
    "vgg19",
    "resnet18",
    "resnet50",
    "resnet101",
    "resnet152",
    "resnext50",
    "inception_v3",
    "densenet121",
    "mobilenet_v2",
    "squeezenet1_0",
    "bert_base",
    "gpt2",
    "vit_b_16",
    "tiny_cnn",
    "tiny_mlp",
    "tiny_transformer",
];

/// Classes that the image networks tell apart.
const CLASSES: usize = 1_000;

/// What a network is built with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZooOptions {
    /// The seed of all weights; the same seed gives the same file on every machine.
    pub seed: u64,
    /// Tokens in a row, for networks over text; their own default (128, or 8 for the tiny one) when absent. Networks over
    /// images ignore it.
    pub sequence: Option<usize>,
}

/// Why a network was not built or not written.
#[derive(Debug, thiserror::Error)]
pub enum ZooError {
    /// The zoo has no such network.
    #[error("the zoo has no model {name:?}; choose one of {}", NAMES.join(", "))]
    Unknown {
        /// The name asked for.
        name: String,
    },
    /// The network cannot read rows of that many tokens.
    #[error("model {name:?} reads rows of 1 to {most} tokens, not {asked}; set `sequence` in that range")]
    Sequence {
        /// The network.
        name: String,
        /// Tokens asked for.
        asked: usize,
        /// Tokens it has positions for.
        most: usize,
    },
    /// The file could not be written.
    #[error("cannot write model {name:?} to {}; check that the folder exists and has room", path.display())]
    Write {
        /// The network.
        name: String,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// The names that [`build`] knows.
#[must_use]
pub const fn names() -> &'static [&'static str] {
    &NAMES
}

/// Builds a network.
///
/// # Errors
/// When the name is unknown, or the options ask for a row of tokens that the network has no positions for.
pub fn build(name: &str, options: &ZooOptions) -> Result<ModelProto, ZooError> {
    let net = Net::new(name, options.seed);
    Ok(match name {
        "alexnet" => alexnet::wire(net),
        "vgg16" => vgg::wire(net, vgg::SIXTEEN),
        "vgg19" => vgg::wire(net, vgg::NINETEEN),
        "resnet18" => resnet::wire(net, &resnet::RESNET18),
        "resnet50" => resnet::wire(net, &resnet::RESNET50),
        "resnet101" => resnet::wire(net, &resnet::RESNET101),
        "resnet152" => resnet::wire(net, &resnet::RESNET152),
        "resnext50" => resnet::wire(net, &resnet::RESNEXT50),
        "inception_v3" => inception::wire(net),
        "densenet121" => densenet::wire(net),
        "mobilenet_v2" => mobilenet::wire(net),
        "squeezenet1_0" => squeezenet::wire(net),
        "bert_base" => bert::wire(net, sequence(name, options, 128, bert::POSITIONS)?),
        "gpt2" => gpt2::wire(net, &gpt2::SMALL, sequence(name, options, 128, gpt2::SMALL.positions)?),
        "vit_b_16" => vit::wire(net),
        "tiny_cnn" => tiny::cnn(net),
        "tiny_mlp" => tiny::mlp(net),
        "tiny_transformer" => gpt2::wire(net, &gpt2::TINY, sequence(name, options, 8, gpt2::TINY.positions)?),
        _ => return Err(ZooError::Unknown { name: name.into() }),
    })
}

/// The bytes of an ONNX file that holds `model`.
#[must_use]
pub fn encode(model: &ModelProto) -> Vec<u8> {
    model.encode_to_vec()
}

/// Builds a network and writes it to `path`, which appears only once it is complete.
///
/// # Errors
/// As [`build`], and when the file cannot be written.
pub fn write(name: &str, path: &Path, options: &ZooOptions) -> Result<(), ZooError> {
    let bytes = encode(&build(name, options)?);
    let partial = path.with_extension("onnx.partial");
    std::fs::write(&partial, bytes)
        .and_then(|()| std::fs::rename(&partial, path))
        .map_err(|source| ZooError::Write { name: name.into(), path: path.into(), source })
}

/// Trainable numbers in a model of the zoo: its weights without stored statistics and constants.
#[must_use]
pub fn parameter_count(model: &ModelProto) -> u64 {
    let trainable = |name: &str| {
        let statistic = name.ends_with(".running_mean") || name.ends_with(".running_var");
        !statistic && !name.starts_with(builder::CONSTANT)
    };
    let weights = model.graph.iter().flat_map(|graph| &graph.initializer);
    weights
        .filter(|weight| trainable(&weight.name))
        .map(|weight| weight.dims.iter().map(|size| size.unsigned_abs()).product::<u64>())
        .sum()
}

fn sequence(name: &str, options: &ZooOptions, default: usize, most: usize) -> Result<usize, ZooError> {
    let asked = options.sequence.unwrap_or(default);
    if asked == 0 || asked > most {
        return Err(ZooError::Sequence { name: name.into(), asked, most });
    }
    Ok(asked)
}
