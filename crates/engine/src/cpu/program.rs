//! A program on the CPU: one optimised tract plan a segment, and the values that pass between them.

use super::buffer::{CpuBuffer, mismatch};
use crate::{Buffer, EngineError, Program, SegmentInfo, State, TensorSpec};
use graph::{Graph, Segment, ValueId};
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tract_core::prelude::{
    IntoArcTensor, IntoRunnable, IntoTValue, OutletId, SpecialOps, TVec, Tensor, TractResult, TypedFact,
    TypedModel, TypedRunnableModel, tvec,
};

pub(super) struct CpuProgram {
    inputs: Vec<TensorSpec>,
    outputs: Vec<TensorSpec>,
    infos: Vec<SegmentInfo>,
    plans: Vec<Plan>,
    input_ids: Vec<ValueId>,
    output_ids: Vec<Output>,
}

/// One segment: what it reads from the state, its plan, what it writes, and what nobody reads after it.
struct Plan {
    reads: Vec<ValueId>,
    plan: Arc<TypedRunnableModel>,
    writes: Vec<ValueId>,
    last_uses: Vec<ValueId>,
}

enum Output {
    Computed(ValueId),
    Constant(Arc<Tensor>),
}

/// Values alive between segments.
pub(super) struct CpuState(BTreeMap<ValueId, Arc<Tensor>>);

impl State for CpuState {
    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl CpuProgram {
    pub(super) fn new(graph: &Graph, segments: &[Segment]) -> Result<Self, EngineError> {
        let mut last_use: BTreeMap<ValueId, usize> = BTreeMap::new();
        for (place, segment) in segments.iter().enumerate() {
            last_use.extend(segment.reads.iter().map(|id| (*id, place)));
        }
        let kept: BTreeSet<ValueId> = graph.outputs.iter().copied().collect();
        let mut plans = Vec::with_capacity(segments.len());
        for (place, segment) in segments.iter().enumerate() {
            let plan = plan(graph, segment).map_err(|error| EngineError::Prepare {
                model: graph.name.clone(),
                segment: segment.name.clone(),
                why: chain(&error),
            })?;
            let over = |id: &&ValueId| last_use.get(*id) == Some(&place) && !kept.contains(*id);
            let last_uses = segment.reads.iter().filter(over).copied().collect();
            plans.push(Plan {
                reads: segment.reads.clone(),
                plan,
                writes: segment.writes.clone(),
                last_uses,
            });
        }
        let info = |segment: &Segment| SegmentInfo {
            name: segment.name.clone(),
            flops: segment.flops,
            weight_bytes: segment.weight_bytes,
            activation_bytes: segment.activation_bytes,
        };
        let output = |id: &ValueId| match graph.constant(*id) {
            Some(constant) => Output::Constant(constant.clone()),
            None => Output::Computed(*id),
        };
        Ok(Self {
            inputs: graph.inputs.iter().map(|id| spec(graph, *id)).collect(),
            outputs: graph.outputs.iter().map(|id| spec(graph, *id)).collect(),
            infos: segments.iter().map(info).collect(),
            plans,
            input_ids: graph.inputs.clone(),
            output_ids: graph.outputs.iter().map(output).collect(),
        })
    }

    pub(super) fn run_segment(&self, segment: usize, state: &mut CpuState) -> Result<(), EngineError> {
        let name = || self.infos[segment].name.clone();
        let Plan { reads, plan, writes, last_uses } = &self.plans[segment];
        let mut inputs = tvec!();
        for id in reads {
            let value = state.0.get(id).ok_or_else(|| EngineError::Execute {
                segment: name(),
                why: "an earlier segment has not run".into(),
            })?;
            inputs.push(value.clone().into_tvalue());
        }
        for id in last_uses {
            state.0.remove(id);
        }
        let failed = |error| EngineError::Execute { segment: name(), why: chain(&error) };
        let outputs = plan.run(inputs).map_err(failed)?;
        state.0.extend(writes.iter().copied().zip(outputs.into_iter().map(|value| value.into_arc_tensor())));
        Ok(())
    }
}

/// A tract error with its causes, on one line.
fn chain(error: &tract_core::prelude::TractError) -> String {
    format!("{error:#}").replace('\n', " ")
}

fn spec(graph: &Graph, id: ValueId) -> TensorSpec {
    let value = graph.value(id);
    TensorSpec { name: value.name.clone(), dtype: value.dtype, shape: value.shape.clone() }
}

/// The tract plan of one segment: values read from others are its inputs, weights its constants.
fn plan(graph: &Graph, segment: &Segment) -> TractResult<Arc<TypedRunnableModel>> {
    let mut model = TypedModel::default();
    let mut outlets: BTreeMap<ValueId, OutletId> = BTreeMap::new();
    for id in &segment.reads {
        let value = graph.value(*id);
        let fact = TypedFact::dt_shape(graph::datum(value.dtype), value.shape.as_slice());
        outlets.insert(*id, model.add_source(&value.name, fact)?);
    }
    for layer in &graph.layers[segment.layers.clone()] {
        let mut inputs: TVec<OutletId> = tvec!();
        for id in &layer.inputs {
            let outlet = match (outlets.get(id), graph.constant(*id)) {
                (Some(outlet), _) => *outlet,
                (None, Some(constant)) => {
                    let outlet = model.add_const(&graph.value(*id).name, constant.clone())?;
                    outlets.insert(*id, outlet);
                    outlet
                }
                (None, None) => {
                    return Err(tract_core::prelude::TractError::msg(format!(
                        "layer {} reads {}, which its segment does not",
                        layer.name,
                        graph.value(*id).name
                    )));
                }
            };
            inputs.push(outlet);
        }
        let written = graph::wire(layer, graph, &mut model, &inputs)?;
        outlets.extend(layer.outputs.iter().copied().zip(written));
    }
    let outputs: Vec<OutletId> = segment.writes.iter().map(|id| outlets[id]).collect();
    model.select_output_outlets(&outputs)?;
    model.into_optimized()?.into_runnable()
}

impl Program for CpuProgram {
    fn inputs(&self) -> &[TensorSpec] {
        &self.inputs
    }

    fn outputs(&self) -> &[TensorSpec] {
        &self.outputs
    }

    fn segments(&self) -> &[SegmentInfo] {
        &self.infos
    }

    fn begin(&self, inputs: Vec<Box<dyn Buffer>>) -> Result<Box<dyn State>, EngineError> {
        if inputs.len() != self.inputs.len() {
            let (expected, found) = (self.inputs.len().to_string(), inputs.len().to_string());
            return Err(mismatch("number of inputs", &expected, &found));
        }
        let mut state = BTreeMap::new();
        for ((spec, id), buffer) in self.inputs.iter().zip(&self.input_ids).zip(inputs) {
            if buffer.spec().shape != spec.shape || buffer.spec().dtype != spec.dtype {
                return Err(mismatch("input", &spec.to_string(), &buffer.spec().to_string()));
            }
            let Ok(buffer) = buffer.into_any().downcast::<CpuBuffer>() else {
                return Err(mismatch("input", "a buffer of this device", "one of another backend"));
            };
            state.insert(*id, buffer.into_tensor());
        }
        Ok(Box::new(CpuState(state)))
    }

    fn finish(&self, state: Box<dyn State>) -> Result<Vec<Box<dyn Buffer>>, EngineError> {
        let Ok(state) = state.into_any().downcast::<CpuState>() else {
            return Err(mismatch("state", "one of this device", "one of another backend"));
        };
        let unfinished = || EngineError::Order { act: "finish", state: "missing an output" };
        let mut outputs: Vec<Box<dyn Buffer>> = Vec::with_capacity(self.outputs.len());
        for (spec, output) in self.outputs.iter().zip(&self.output_ids) {
            let tensor = match output {
                Output::Constant(tensor) => tensor.clone(),
                Output::Computed(id) => state.0.get(id).ok_or_else(unfinished)?.clone(),
            };
            outputs.push(Box::new(CpuBuffer::holding(spec.clone(), tensor)));
        }
        Ok(outputs)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
