//! `config.pbtxt` to [`ModelConfig`]: fields read strictly, unknown ones warned about, contradictions refused, all at once.

use super::config::{
    Batching, InstanceGroup, LEVELS_MAX, ModelConfig, QueuePolicy, TensorConfig, TimeoutAction, VersionPolicy,
};
use super::pbtxt::{Field, Message, Position, SyntaxError, Value, parse};
use graph::DType;
use std::fmt;
use vocab::{Class, Span};

/// Something about a configuration, and where it is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where.
    pub at: Position,
    /// What, with the remedy.
    pub why: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.why)
    }
}

/// Why a configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// It is not protobuf text.
    #[error("{0}")]
    Syntax(#[from] SyntaxError),
    /// It says things this server cannot do, or that contradict each other: all of them.
    #[error("{}", faults.iter().map(Fault::to_string).collect::<Vec<_>>().join("; "))]
    Faults {
        /// In the order of the file.
        faults: Vec<Fault>,
    },
}

/// Reads the configuration of the model in folder `folder`, with what it says that has no effect.
///
/// # Errors
/// When it is not protobuf text, or asks for what cannot be done.
pub fn parse_config(text: &str, folder: &str) -> Result<(ModelConfig, Vec<Fault>), ConfigError> {
    let message = parse(text)?;
    let mut reader = Reader::default();
    let mut config = ModelConfig::bare(folder);
    for field in &message.fields {
        reader.top(field, &mut config);
    }
    reader.once(&message, &["input", "output", "instance_group", "parameters"]);
    reader.contradictions(&message, &mut config);
    if reader.faults.is_empty() {
        return Ok((config, reader.warnings));
    }
    reader.faults.sort_by_key(|fault| fault.at);
    Err(ConfigError::Faults { faults: reader.faults })
}

/// Fields of Triton's `ModelConfig` that are read over: they change nothing here yet.
const WITHOUT_EFFECT: [&str; 9] = [
    "optimization",
    "model_warmup",
    "response_cache",
    "metric_tags",
    "cc_model_filenames",
    "model_operations",
    "model_repository_agents",
    "model_metrics",
    "runtime",
];

#[derive(Default)]
struct Reader {
    faults: Vec<Fault>,
    warnings: Vec<Fault>,
}

impl Reader {
    fn top(&mut self, field: &Field, config: &mut ModelConfig) {
        match field.name.as_str() {
            "name" => {
                let folder = config.name.clone();
                if let Some(name) = self.text(field).filter(|name| !name.is_empty() && *name != folder) {
                    self.fault(
                        field,
                        format!("name {name:?} differs from the folder's, {folder:?}; make them equal"),
                    );
                }
            }
            "platform" => self.served_kind(field, "platform", "onnxruntime_onnx"),
            "backend" => self.served_kind(field, "backend", "onnxruntime"),
            "max_batch_size" => config.max_batch_size = self.whole(field),
            "input" => {
                config.inputs.extend(self.message(field).and_then(|message| self.tensor(field, message)))
            }
            "output" => {
                config.outputs.extend(self.message(field).and_then(|message| self.tensor(field, message)))
            }
            "dynamic_batching" => {
                config.dynamic_batching = true;
                if let Some(message) = self.message(field) {
                    self.batching(message, &mut config.batching);
                }
            }
            "version_policy" => {
                if let Some(policy) =
                    self.message(field).and_then(|message| self.version_policy(field, message))
                {
                    config.version_policy = policy;
                }
            }
            "parameters" => self.parameter(field, config),
            "instance_group" => {
                let group = self.message(field).and_then(|message| self.instance_group(message));
                config.instance_groups.extend(group);
                self.warn(
                    field,
                    "instance_group is read and not honoured yet: the policy places runs".into(),
                );
            }
            "default_model_filename" => self.model_filename(field, config),
            "sequence_batching" | "ensemble_scheduling" => {
                self.fault(field, format!("{} is not served by raddle; remove it or the model", field.name));
            }
            "model_transaction_policy" => self.transactions(field),
            known if WITHOUT_EFFECT.contains(&known) => {
                self.warn(field, format!("{known} is read and has no effect"));
            }
            _ => self.unknown(field),
        }
    }

    fn served_kind(&mut self, field: &Field, what: &str, full: &str) {
        let Some(kind) = self.text(field) else { return };
        if !["", "onnx", full].contains(&kind) {
            self.fault(
                field,
                format!("{what} {kind:?} is not served; what works: {full:?} or \"onnx\" (export the model to ONNX)"),
            );
        }
    }

    fn model_filename(&mut self, field: &Field, config: &mut ModelConfig) {
        let Some(file) = self.text(field) else { return };
        if super::scan::is_name(file) {
            config.model_filename = Some(file.to_owned());
        } else {
            let why = format!("default_model_filename {file:?} must be a plain file name, without folders");
            self.fault(field, why);
        }
    }

    fn transactions(&mut self, field: &Field) {
        let Some(message) = self.message(field) else { return };
        for inner in &message.fields {
            match inner.name.as_str() {
                "decoupled" if self.flag(inner) == Some(true) => {
                    self.fault(inner, "decoupled models are not served; set it to false".into());
                }
                "decoupled" => {}
                _ => self.unknown(inner),
            }
        }
    }

    fn tensor(&mut self, field: &Field, message: &Message) -> Option<TensorConfig> {
        let (mut name, mut dtype, mut dims, mut label_filename) = (None, None, Vec::new(), None);
        let mut typed = false;
        self.once(message, &["dims"]);
        for inner in &message.fields {
            match inner.name.as_str() {
                "name" => name = self.text(inner).map(str::to_owned),
                "data_type" => {
                    typed = true;
                    dtype = self.data_type(inner);
                }
                "dims" => dims.extend(self.dim(inner)),
                "label_filename" => {
                    label_filename = self.text(inner).map(str::to_owned).filter(|file| !file.is_empty())
                }
                "reshape"
                | "is_shape_tensor"
                | "allow_ragged_batch"
                | "optional"
                | "format"
                | "is_non_linear_format_io" => {
                    self.input_option(inner);
                }
                _ => self.unknown(inner),
            }
        }
        if name.as_ref().is_none_or(String::is_empty) {
            self.fault(field, format!("an {} has no name; add the one in the ONNX file", field.name));
        }
        if !typed {
            self.fault(
                field,
                format!("{} {:?} has no data_type", field.name, name.clone().unwrap_or_default()),
            );
        }
        if let Some(file) = label_filename.as_deref().filter(|file| !super::scan::is_name(file)) {
            self.fault(field, format!("label_filename {file:?} must be a plain file name, without folders"));
        }
        Some(TensorConfig { name: name?, dtype: dtype?, dims, label_filename })
    }

    /// Options of a tensor that only matter when they are on.
    fn input_option(&mut self, field: &Field) {
        let off = match &field.value {
            Value::Word(word) => {
                ["false", "False", "f", "0", "FORMAT_NONE", "FORMAT_NCHW"].contains(&word.as_str())
            }
            _ => false,
        };
        if !off {
            self.fault(field, format!("{} is not served; remove it", field.name));
        }
    }

    fn data_type(&mut self, field: &Field) -> Option<DType> {
        let word = self.word(field)?.to_owned();
        let dtype = word.strip_prefix("TYPE_").and_then(DType::from_kserve);
        match (dtype, word.as_str()) {
            (Some(dtype), _) => return Some(dtype),
            (None, "TYPE_STRING" | "TYPE_BF16") => {
                self.fault(field, format!("no model of this server takes {word} yet"));
            }
            (None, _) => {
                self.fault(field, format!("{word} is no data type; for example TYPE_FP32 or TYPE_INT64 is"))
            }
        }
        None
    }

    fn dim(&mut self, field: &Field) -> Option<i64> {
        let dim = self.number(field, "whole numbers: positive, or -1 for any size");
        if dim.is_some_and(|dim: i64| dim < -1 || dim == 0) {
            self.fault(field, "a dimension is a positive whole number, or -1 for any size".into());
        }
        dim
    }

    fn batching(&mut self, message: &Message, batching: &mut Batching) {
        self.once(message, &["preferred_batch_size", "priority_queue_policy"]);
        for field in &message.fields {
            match field.name.as_str() {
                "preferred_batch_size" => batching.preferred.extend::<Option<u32>>(self.whole(field)),
                "max_queue_delay_microseconds" => {
                    batching.delay = Span::from_us(self.whole(field).unwrap_or(0))
                }
                "preserve_ordering" => batching.preserve_ordering = self.flag(field).unwrap_or(false),
                "priority_levels" => {
                    let levels = self.whole(field).unwrap_or(0_u32);
                    if levels > LEVELS_MAX {
                        self.fault(field, format!("priority_levels is at most {LEVELS_MAX}"));
                    }
                    if levels > 0 {
                        batching.levels = levels.min(LEVELS_MAX);
                        batching.levels_given = true;
                    }
                }
                "default_priority_level" => {
                    if let Some(class) = self.whole(field).and_then(Class::new) {
                        batching.default_class = class;
                    }
                }
                "default_queue_policy" => {
                    if let Some(message) = self.message(field) {
                        batching.default_policy = self.queue_policy(message);
                    }
                }
                "priority_queue_policy" => {
                    if let Some((class, policy)) =
                        self.message(field).and_then(|map| self.class_policy(field, map))
                        && batching.policies.insert(class, policy).is_some()
                    {
                        self.fault(
                            field,
                            format!("priority level {} has two policies; keep one", class.level()),
                        );
                    }
                }
                _ => self.unknown(field),
            }
        }
    }

    fn class_policy(&mut self, field: &Field, map: &Message) -> Option<(Class, QueuePolicy)> {
        let (mut key, mut policy) = (None, QueuePolicy::default());
        self.once(map, &[]);
        for inner in &map.fields {
            match inner.name.as_str() {
                "key" => key = self.whole(inner),
                "value" => {
                    policy = self.message(inner).map(|message| self.queue_policy(message)).unwrap_or_default()
                }
                _ => self.unknown(inner),
            }
        }
        let class = key.and_then(Class::new);
        if class.is_none() {
            self.fault(field, "the key of a priority_queue_policy is a priority level, 1 or more".into());
        }
        Some((class?, policy))
    }

    fn queue_policy(&mut self, message: &Message) -> QueuePolicy {
        let mut policy = QueuePolicy::default();
        self.once(message, &[]);
        for field in &message.fields {
            match field.name.as_str() {
                "timeout_action" => match self.word(field) {
                    Some("REJECT" | "0") => policy.timeout_action = TimeoutAction::Reject,
                    Some("DELAY" | "1") => policy.timeout_action = TimeoutAction::Delay,
                    Some(_) => self.fault(field, "timeout_action is REJECT or DELAY".into()),
                    None => {}
                },
                "default_timeout_microseconds" => {
                    policy.default_timeout = Span::from_us(self.whole(field).unwrap_or(0));
                }
                "allow_timeout_override" => policy.allow_timeout_override = self.flag(field).unwrap_or(false),
                "max_queue_size" => policy.max_queue_size = self.whole(field).unwrap_or(0),
                _ => self.unknown(field),
            }
        }
        policy
    }

    fn version_policy(&mut self, field: &Field, message: &Message) -> Option<VersionPolicy> {
        let [choice] = message.fields.as_slice() else {
            self.fault(field, "version_policy has exactly one of latest, all and specific".into());
            return None;
        };
        let inner = self.message(choice)?;
        match choice.name.as_str() {
            "all" => Some(VersionPolicy::All),
            "latest" => {
                let count = inner.fields.iter().find(|field| field.name == "num_versions");
                let count = count.map_or(Some(1), |field| self.whole(field));
                Some(VersionPolicy::Latest(count?.max(1)))
            }
            "specific" => {
                let named = inner.fields.iter().filter(|field| field.name == "versions");
                Some(VersionPolicy::Specific(named.filter_map(|field| self.whole(field)).collect()))
            }
            _ => {
                self.unknown(choice);
                None
            }
        }
    }

    fn parameter(&mut self, field: &Field, config: &mut ModelConfig) {
        let Some(map) = self.message(field) else { return };
        let (mut key, mut value) = (None, String::new());
        for inner in &map.fields {
            match inner.name.as_str() {
                "key" => key = self.text(inner).map(str::to_owned),
                "value" => {
                    let text = self.message(inner).and_then(|message| {
                        message
                            .fields
                            .iter()
                            .find(|field| field.name == "string_value")
                            .and_then(|f| self.text(f))
                    });
                    value = text.unwrap_or_default().to_owned();
                }
                _ => self.unknown(inner),
            }
        }
        let Some(key) = key else { return self.fault(field, "a parameter has no key".into()) };
        self.our_parameter(field, &key, &value, config);
        if config.parameters.insert(key.clone(), value).is_some() {
            self.fault(field, format!("parameter {key:?} is given twice; keep one"));
        }
    }

    fn our_parameter(&mut self, field: &Field, key: &str, value: &str, config: &mut ModelConfig) {
        match key {
            "raddle.slo_us" | "raddle.period_us" => match value.parse::<u64>() {
                Ok(us) if us > 0 && key == "raddle.slo_us" => config.slo = Some(Span::from_us(us)),
                Ok(us) if us > 0 => config.period = Some(Span::from_us(us)),
                _ => self.fault(field, format!("{key} is a positive number of microseconds, not {value:?}")),
            },
            "raddle.class" if value.parse().ok().and_then(Class::new).is_none() => {
                self.fault(field, format!("raddle.class is a priority level, 1 or more, not {value:?}"));
            }
            "raddle.class" => {}
            ours if ours.starts_with("raddle.") => {
                self.fault(
                    field,
                    format!("parameter {ours:?} is unknown; raddle.class, raddle.slo_us and raddle.period_us exist"),
                );
            }
            _ => {}
        }
    }

    fn instance_group(&mut self, message: &Message) -> Option<InstanceGroup> {
        let mut group = InstanceGroup { kind: "KIND_AUTO".into(), count: 1, gpus: Vec::new() };
        self.once(message, &["gpus", "secondary_devices", "profile"]);
        for field in &message.fields {
            match field.name.as_str() {
                "kind" => match self.word(field) {
                    Some(kind @ ("KIND_AUTO" | "KIND_GPU" | "KIND_CPU" | "KIND_MODEL")) => {
                        group.kind = kind.to_owned()
                    }
                    Some(_) => {
                        self.fault(field, "kind is KIND_AUTO, KIND_GPU, KIND_CPU or KIND_MODEL".into())
                    }
                    None => {}
                },
                "count" => group.count = self.whole(field).unwrap_or(1),
                "gpus" => group.gpus.extend::<Option<u32>>(self.whole(field)),
                "name" | "rate_limiter" | "profile" | "passive" | "host_policy" | "secondary_devices" => {}
                _ => self.unknown(field),
            }
        }
        Some(group)
    }

    /// What no single field can tell.
    fn contradictions(&mut self, message: &Message, config: &mut ModelConfig) {
        let at = |name: &str| message.fields.iter().find(|field| field.name == name).map(|field| field.at);
        let start = Position { line: 1, column: 1 };
        let place = at("dynamic_batching").unwrap_or(start);
        let configured = message.fields.iter().any(|field| match &field.value {
            Value::Message(inner) if field.name == "dynamic_batching" => inner
                .fields
                .iter()
                .any(|field| field.name == "default_priority_level" && word_is_not(field, "0")),
            _ => false,
        });
        let ours =
            config.parameters.get("raddle.class").and_then(|text| text.parse().ok()).and_then(Class::new);
        let mut wrong = Vec::new();
        if let Some(class) = ours {
            if configured && class != config.batching.default_class {
                wrong.push("raddle.class and default_priority_level differ; keep one".to_owned());
            }
            config.batching.default_class = class;
        }
        let (default, levels) = (config.batching.default_class.level(), config.batching.levels);
        if config.batching.levels_given && default > levels {
            wrong.push(format!(
                "the default priority level is {default}, priority_levels is {levels}; lower one"
            ));
        } else if default > LEVELS_MAX {
            wrong.push(format!("the default priority level is {default}, it can be at most {LEVELS_MAX}"));
        } else if configured && !config.batching.levels_given {
            wrong.push("default_priority_level needs priority_levels; add it".to_owned());
        } else {
            config.batching.levels = levels.max(default);
        }
        if config.batching.policies.keys().any(|class| class.level() > config.batching.levels) {
            wrong.push(format!("a priority_queue_policy is for a level beyond priority_levels ({levels})"));
        }
        let limit = config.max_batch_size;
        for size in &config.batching.preferred {
            if *size == 0 || limit.is_some_and(|limit| *size > limit.max(1)) {
                let limit = limit.map_or_else(|| "unset".to_owned(), |limit| limit.to_string());
                wrong.push(format!(
                    "preferred_batch_size {size} must be between 1 and max_batch_size ({limit})"
                ));
            }
        }
        self.faults.extend(wrong.into_iter().map(|why| Fault { at: place, why }));
        self.twice("input", &config.inputs, at("input").unwrap_or(start));
        self.twice("output", &config.outputs, at("output").unwrap_or(start));
    }

    fn twice(&mut self, list: &str, tensors: &[TensorConfig], at: Position) {
        for (place, tensor) in tensors.iter().enumerate() {
            if tensors[..place].iter().any(|earlier| earlier.name == tensor.name) {
                self.faults
                    .push(Fault { at, why: format!("{list} {:?} is declared twice; keep one", tensor.name) });
            }
        }
    }

    /// Reports fields given more than once, but for those `repeated`.
    fn once(&mut self, message: &Message, repeated: &[&str]) {
        for (place, field) in message.fields.iter().enumerate() {
            let single = !repeated.contains(&field.name.as_str());
            if single && message.fields[..place].iter().any(|earlier| earlier.name == field.name) {
                self.fault(field, format!("{} is given twice; keep one", field.name));
            }
        }
    }

    fn message<'f>(&mut self, field: &'f Field) -> Option<&'f Message> {
        match &field.value {
            Value::Message(message) => Some(message),
            _ => self.wrong(field, "a message in braces"),
        }
    }

    fn text<'f>(&mut self, field: &'f Field) -> Option<&'f str> {
        match &field.value {
            Value::Text(text) => Some(text),
            _ => self.wrong(field, "a quoted string"),
        }
    }

    fn word<'f>(&mut self, field: &'f Field) -> Option<&'f str> {
        match &field.value {
            Value::Word(word) => Some(word),
            _ => self.wrong(field, "a word without quotes"),
        }
    }

    fn flag(&mut self, field: &Field) -> Option<bool> {
        match &field.value {
            Value::Word(word) if ["true", "True", "t", "1"].contains(&word.as_str()) => Some(true),
            Value::Word(word) if ["false", "False", "f", "0"].contains(&word.as_str()) => Some(false),
            _ => self.wrong(field, "true or false"),
        }
    }

    /// A whole number, 0 or more, within `T`.
    fn whole<T: TryFrom<i128>>(&mut self, field: &Field) -> Option<T> {
        self.number(field, "a whole number, 0 or more, within its range")
    }

    fn number<T: TryFrom<i128>>(&mut self, field: &Field, expected: &str) -> Option<T> {
        let number = match &field.value {
            Value::Word(word) => whole_number(word).and_then(|number| T::try_from(number).ok()),
            _ => None,
        };
        if number.is_none() {
            return self.wrong(field, expected);
        }
        number
    }

    fn wrong<T>(&mut self, field: &Field, expected: &str) -> Option<T> {
        self.fault(field, format!("{} must be {expected}", field.name));
        None
    }

    fn unknown(&mut self, field: &Field) {
        self.warn(field, format!("field {} is unknown and has no effect", field.name));
    }

    fn fault(&mut self, field: &Field, why: String) {
        self.faults.push(Fault { at: field.at, why });
    }

    fn warn(&mut self, field: &Field, why: String) {
        self.warnings.push(Fault { at: field.at, why });
    }
}

fn word_is_not(field: &Field, word: &str) -> bool {
    !matches!(&field.value, Value::Word(found) if found == word)
}

/// Decimal, hexadecimal (`0x1f`) or octal (`017`), with a sign.
fn whole_number(word: &str) -> Option<i128> {
    let (negative, digits) = word.strip_prefix('-').map_or((false, word), |digits| (true, digits));
    if digits.starts_with(['+', '-']) || digits.is_empty() {
        return None;
    }
    let number = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => i128::from_str_radix(hex, 16).ok()?,
        None if digits.len() > 1 && digits.starts_with('0') => i128::from_str_radix(digits, 8).ok()?,
        None => digits.parse().ok()?,
    };
    Some(if negative { -number } else { number })
}
