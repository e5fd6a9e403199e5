//! What can be wrong with a request, in Triton's words where its clients and tests look for them.

/// The kind of failure, which each protocol turns into a status of its own: over HTTP 400, 503 or 500.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The caller must change the request.
    Invalid,
    /// Not now; the same request may work later or elsewhere.
    Unavailable,
    /// The server or the model failed.
    Internal,
}

/// Why a request cannot be put to a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The body is not the JSON a request is made of.
    #[error("failed to parse the request JSON buffer: {why}")]
    Json {
        /// What the parser found, and where.
        why: String,
    },
    /// Nested deeper than any request needs.
    #[error("the request JSON is nested deeper than {limit} levels")]
    Depth {
        /// The limit.
        limit: usize,
    },
    /// The header that splits JSON from tensors does not fit the body.
    #[error("Inference-Header-Content-Length is {claimed}, the body has {body} bytes")]
    HeaderLength {
        /// Bytes of JSON claimed.
        claimed: usize,
        /// Bytes there are.
        body: usize,
    },
    /// The header that splits JSON from tensors is not a number.
    #[error("Inference-Header-Content-Length must be a whole number of bytes, 0 or more")]
    HeaderLengthText,
    /// A raw body was sent to a model that takes another number of inputs than one.
    #[error(
        "a raw body (Inference-Header-Content-Length: 0) needs a model with one input, '{model}' has {inputs}"
    )]
    RawInputs {
        /// The model.
        model: String,
        /// Inputs it takes.
        inputs: usize,
    },
    /// A raw body does not say which of several free dimensions has which size.
    #[error(
        "a raw body does not tell the shape of input '{input}' {expected}; send a JSON header with its \"shape\""
    )]
    RawShape {
        /// The input.
        input: String,
        /// Its shape.
        expected: String,
    },
    /// A model takes no such input.
    #[error("unexpected inference input '{input}' for model '{model}'")]
    UnexpectedInput {
        /// The input.
        input: String,
        /// The model.
        model: String,
    },
    /// A model gives no such output.
    #[error("unexpected inference output '{output}' for model '{model}'")]
    UnexpectedOutput {
        /// The output.
        output: String,
        /// The model.
        model: String,
    },
    /// An input or output is listed more than once.
    #[error("'{name}' is listed more than once in \"{list}\"; list it once")]
    Duplicate {
        /// The tensor.
        name: String,
        /// `inputs`, `outputs` or `parameters`.
        list: &'static str,
    },
    /// Inputs the model needs are not there.
    #[error(
        "expected {expected} inputs but got {found} inputs for model '{model}'; missing: {}", missing.join(", ")
    )]
    MissingInputs {
        /// The model.
        model: String,
        /// Inputs it needs.
        expected: usize,
        /// Inputs given.
        found: usize,
        /// Names of those not given.
        missing: Vec<String>,
    },
    /// Not a name of an element type.
    #[error(
        "input '{input}' has unknown data-type '{datatype}'; use BOOL, UINT8 to UINT64, INT8 to INT64, FP16, FP32 or FP64"
    )]
    UnknownDatatype {
        /// The input.
        input: String,
        /// The name.
        datatype: String,
    },
    /// An element type which exists, and which no model here takes yet.
    #[error("input '{input}' has data-type '{datatype}', which no model of this server takes yet")]
    UnsupportedDatatype {
        /// The input.
        input: String,
        /// The name.
        datatype: String,
    },
    /// Another element type than the model's.
    #[error("inference input '{input}' data-type is '{found}', but model '{model}' expects '{expected}'")]
    Datatype {
        /// The input.
        input: String,
        /// The model.
        model: String,
        /// What it takes.
        expected: &'static str,
        /// What was given.
        found: &'static str,
    },
    /// A shape that cannot be.
    #[error(
        "input '{input}' has shape {shape}: dimensions must be 0 or more and their product must fit memory"
    )]
    ImpossibleShape {
        /// The input.
        input: String,
        /// The shape.
        shape: String,
    },
    /// Another shape than the model's.
    #[error("unexpected shape for input '{input}' for model '{model}'. Expected {expected}, got {found}")]
    Shape {
        /// The input.
        input: String,
        /// The model.
        model: String,
        /// What it takes; -1 may be any size.
        expected: String,
        /// What was given.
        found: String,
    },
    /// More rows than the model takes at once.
    #[error("inference request batch-size must be <= {limit} for '{model}'")]
    BatchSize {
        /// The model.
        model: String,
        /// Most rows.
        limit: usize,
    },
    /// No row at all.
    #[error("inference request batch-size must be at least 1 for '{model}'")]
    NoRows {
        /// The model.
        model: String,
    },
    /// Inputs disagree about the number of rows.
    #[error("input '{input}' batch size does not match other inputs for '{model}'")]
    BatchMismatch {
        /// The first that differs.
        input: String,
        /// The model.
        model: String,
    },
    /// Binary data of another length than the shape says.
    #[error(
        "[request id: {id}] input byte size mismatch for input '{input}' for model '{model}'. Expected {expected}, got {found}"
    )]
    ByteSize {
        /// The request's id, `<id_unknown>` when it has none.
        id: String,
        /// The input.
        input: String,
        /// The model.
        model: String,
        /// Bytes its shape needs.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
    /// JSON data with another number of elements than the shape says.
    #[error("input '{input}' has {found} elements in \"data\", its shape {shape} needs {expected}")]
    ElementCount {
        /// The input.
        input: String,
        /// Its shape.
        shape: String,
        /// Elements the shape needs.
        expected: usize,
        /// Elements given, or `more than N`.
        found: String,
    },
    /// An element that is not of the input's type.
    #[error("input '{input}' element {at}: {text} is not {expected}")]
    Element {
        /// The input.
        input: String,
        /// Its place, counted from 0.
        at: usize,
        /// What is there.
        text: String,
        /// What should be.
        expected: &'static str,
    },
    /// A BOOL byte that is neither 0 nor 1.
    #[error("input '{input}' element {at}: a BOOL is 0 or 1, got {value}")]
    BoolByte {
        /// The input.
        input: String,
        /// Its place, counted from 0.
        at: usize,
        /// The byte.
        value: u8,
    },
    /// An element type JSON has no numbers for.
    #[error("input '{input}' is FP16, which JSON cannot carry; send it with \"binary_data_size\"")]
    HalfInJson {
        /// The input.
        input: String,
    },
    /// No data at all.
    #[error("input '{input}' has no data; give \"data\" or the parameter \"binary_data_size\"")]
    NoData {
        /// The input.
        input: String,
    },
    /// Data given twice.
    #[error("input '{input}' has both \"data\" and \"binary_data_size\"; give one")]
    TwoData {
        /// The input.
        input: String,
    },
    /// A binary size beyond the body's end.
    #[error("input '{input}' claims {claimed} bytes of binary data, the body has {left} left")]
    BinaryBeyond {
        /// The input.
        input: String,
        /// Bytes claimed.
        claimed: u64,
        /// Bytes left.
        left: usize,
    },
    /// Bytes after the last input.
    #[error(
        "the body has {extra} bytes after the last input; \"binary_data_size\" values must add up to its length"
    )]
    BinaryLeft {
        /// Bytes nobody claims.
        extra: usize,
    },
    /// The tensors together are too large.
    #[error("the inputs need {needed} bytes, this server takes at most {limit} a request; send fewer rows")]
    TooLarge {
        /// Bytes the shapes need; `usize::MAX` when that overflows.
        needed: usize,
        /// The limit.
        limit: usize,
    },
    /// A parameter of the wrong type or range.
    #[error("parameter \"{name}\" must be {expected}")]
    Parameter {
        /// The parameter.
        name: String,
        /// What it must be.
        expected: &'static str,
    },
    /// A reserved parameter this server does not know.
    #[error("parameter \"{name}\" is reserved and not supported by this server; leave it out")]
    Reserved {
        /// The parameter.
        name: String,
    },
    /// Tensors in shared memory.
    #[error("'{name}' is in shared memory, which this server does not take; send the tensor in the request")]
    SharedMemory {
        /// The tensor.
        name: String,
    },
    /// An FP16 output asked for as JSON.
    #[error("output '{output}' is FP16, which JSON cannot carry; ask for it with \"binary_data\": true")]
    HalfOutput {
        /// The output.
        output: String,
    },
}

/// Why an answer cannot be written the way it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// NaN or an infinity, asked for as JSON.
    #[error(
        "output '{output}' element {at} is {value}, which JSON cannot carry; ask for binary output (\"binary_data\": true)"
    )]
    NonFinite {
        /// The output.
        output: String,
        /// Its place, counted from 0.
        at: usize,
        /// The value.
        value: String,
    },
    /// The runtime gave other tensors than the model has outputs: a bug of the server.
    #[error("the answer has {found} outputs, model '{model}' has {expected}")]
    Outputs {
        /// The model.
        model: String,
        /// Outputs it has.
        expected: usize,
        /// Tensors given.
        found: usize,
    },
}

impl ReplyError {
    /// Whose fault it is.
    #[must_use]
    pub const fn trouble(&self) -> Trouble {
        match self {
            Self::NonFinite { .. } => Trouble::Invalid,
            Self::Outputs { .. } => Trouble::Internal,
        }
    }
}
