//! A model's configuration as clients read it: Triton's `ModelConfig` in JSON, completed from the loaded model.

use super::config::{ModelConfig, QueuePolicy, TensorConfig, TimeoutAction, VersionPolicy};
use crate::live::ModelInfo;
use graph::{Dim, Port};
use serde_json::{Value, json};

/// What `/v2/models/N/config` answers: field names of the proto, enums as text.
#[must_use]
pub fn config_json(config: &ModelConfig, model: &ModelInfo) -> Value {
    let batched = model.batch_max > 0;
    let mut reply = json!({
        "name": model.name,
        "platform": "onnxruntime_onnx",
        "backend": "onnxruntime",
        "version_policy": version_policy(&config.version_policy),
        "max_batch_size": model.batch_max,
        "input": tensors(&model.inputs, &config.inputs, batched, input),
        "output": tensors(&model.outputs, &config.outputs, batched, output),
        "instance_group": config.instance_groups.iter().map(|group| json!({
            "kind": group.kind, "count": group.count, "gpus": group.gpus,
        })).collect::<Vec<_>>(),
        "default_model_filename": config.model_filename.as_deref().unwrap_or("model.onnx"),
        "parameters": config.parameters.iter()
            .map(|(key, value)| (key.clone(), json!({"string_value": value})))
            .collect::<serde_json::Map<_, _>>(),
        "model_transaction_policy": {"decoupled": false},
        "response_cache": {"enable": false},
    });
    if batched {
        reply["dynamic_batching"] = batching(config);
    }
    reply
}

fn batching(config: &ModelConfig) -> Value {
    let batching = &config.batching;
    json!({
        "preferred_batch_size": batching.preferred,
        "max_queue_delay_microseconds": batching.delay.ns() / 1_000,
        "preserve_ordering": batching.preserve_ordering,
        "priority_levels": batching.levels,
        "default_priority_level": batching.default_class.level(),
        "default_queue_policy": queue_policy(batching.default_policy),
        "priority_queue_policy": batching.policies.iter()
            .map(|(class, policy)| (class.level().to_string(), queue_policy(*policy)))
            .collect::<serde_json::Map<_, _>>(),
    })
}

fn queue_policy(policy: QueuePolicy) -> Value {
    json!({
        "timeout_action": match policy.timeout_action {
            TimeoutAction::Reject => "REJECT",
            TimeoutAction::Delay => "DELAY",
        },
        "default_timeout_microseconds": policy.default_timeout.ns() / 1_000,
        "allow_timeout_override": policy.allow_timeout_override,
        "max_queue_size": policy.max_queue_size,
    })
}

fn version_policy(policy: &VersionPolicy) -> Value {
    match policy {
        VersionPolicy::Latest(count) => json!({"latest": {"num_versions": count}}),
        VersionPolicy::All => json!({"all": {}}),
        VersionPolicy::Specific(versions) => json!({"specific": {"versions": versions}}),
    }
}

/// Each port of the loaded model; before that, what the configuration declares.
fn tensors(
    ports: &[Port],
    declared: &[TensorConfig],
    batched: bool,
    write: impl Fn(&str, &str, &[i64], Option<&TensorConfig>) -> Value,
) -> Vec<Value> {
    if ports.is_empty() {
        return declared.iter().map(|t| write(&t.name, t.dtype.kserve(), &t.dims, Some(t))).collect();
    }
    let dims = |port: &Port| -> Vec<i64> {
        let leading = usize::from(batched && matches!(port.shape.first(), Some(Dim::Batch)));
        let size = |dim: &Dim| match dim {
            Dim::Fixed(size) => i64::try_from(*size).unwrap_or(i64::MAX),
            Dim::Batch | Dim::Free(_) => -1,
        };
        port.shape.iter().skip(leading).map(size).collect()
    };
    ports
        .iter()
        .map(|port| {
            let known = declared.iter().find(|tensor| tensor.name == port.name);
            write(&port.name, port.dtype.kserve(), &dims(port), known)
        })
        .collect()
}

fn input(name: &str, datatype: &str, dims: &[i64], _: Option<&TensorConfig>) -> Value {
    json!({
        "name": name, "data_type": format!("TYPE_{datatype}"), "format": "FORMAT_NONE", "dims": dims,
        "is_shape_tensor": false, "allow_ragged_batch": false, "optional": false,
    })
}

fn output(name: &str, datatype: &str, dims: &[i64], declared: Option<&TensorConfig>) -> Value {
    json!({
        "name": name, "data_type": format!("TYPE_{datatype}"), "dims": dims,
        "label_filename": declared.and_then(|tensor| tensor.label_filename.as_deref()).unwrap_or(""),
        "is_shape_tensor": false,
    })
}
