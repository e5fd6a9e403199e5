//! Compiles generated kernels, and keeps what was compiled on disk.

use crate::lower::{Kernel, Kind, Lowered};
use cudarc::nvrtc::{result, sys};
use std::ffi::CString;
use std::path::{Path, PathBuf};

/// What every source begins with.
const PRELUDE: &str = include_str!("kernels/prelude.cu");

/// Why kernels could not be compiled.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// There is no NVRTC library.
    #[error(
        "no NVRTC library was found; install CUDA 13 or `nvidia-cuda-nvrtc` and name its folder in LD_LIBRARY_PATH"
    )]
    Missing,
    /// The compiler refused a source, which is a bug of the lowering.
    #[error("generated kernels do not compile for {arch}: {log}")]
    Refused {
        /// The architecture.
        arch: String,
        /// What the compiler said.
        log: String,
    },
}

/// One source of all the kernels of a model.
pub(crate) fn source(kernels: &[Kernel]) -> String {
    let mut text = String::from(PRELUDE);
    for kernel in kernels {
        text.push_str(&kernel.source);
        text.push('\n');
    }
    text
}

/// Machine code of `source` for `arch` (for example `sm_90`).
///
/// # Errors
/// When there is no compiler, or it refuses the source.
pub(crate) fn compile(source: &str, arch: &str) -> Result<Vec<u8>, CompileError> {
    // SAFETY: only looks for a library.
    if !unsafe { sys::is_culib_present() } {
        return Err(CompileError::Missing);
    }
    let refused = |log: String| CompileError::Refused { arch: arch.to_owned(), log };
    let text = CString::new(source).map_err(|error| refused(error.to_string()))?;
    let program = result::create_program(&text, None).map_err(|error| refused(format!("{error:?}")))?;
    let options = [format!("--gpu-architecture={arch}"), "--std=c++17".to_owned()];
    // SAFETY: the program was created above and is destroyed once, below.
    let compiled = unsafe { result::compile_program(program, &options) };
    let outcome = match compiled {
        Ok(()) => binary(program).map_err(|error| refused(format!("{error:?}"))),
        Err(error) => Err(refused(log(program).unwrap_or_else(|| format!("{error:?}")))),
    };
    // SAFETY: nothing of the program is used afterwards.
    let _ = unsafe { result::destroy_program(program) };
    outcome
}

fn binary(program: sys::nvrtcProgram) -> Result<Vec<u8>, result::NvrtcError> {
    let mut size = 0;
    // SAFETY: the program is alive; the size is written.
    unsafe { sys::nvrtcGetCUBINSize(program, &raw mut size) }.result()?;
    let mut bytes = vec![0u8; size];
    // SAFETY: the buffer has the size asked for.
    unsafe { sys::nvrtcGetCUBIN(program, bytes.as_mut_ptr().cast()) }.result()?;
    Ok(bytes)
}

/// The errors the compiler wrote, without its warnings.
fn log(program: sys::nvrtcProgram) -> Option<String> {
    // SAFETY: the program is alive.
    let raw = unsafe { result::get_program_log(program) }.ok()?;
    let text: String = raw.iter().map(|c| char::from(c.cast_unsigned())).take_while(|c| *c != '\0').collect();
    let errors: Vec<&str> = text.lines().filter(|line| line.contains("error")).take(8).collect();
    Some(errors.join(" "))
}

/// Compiled kernels on disk, one file a source.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    folder: Option<PathBuf>,
}

/// Tells files apart that several threads write at once.
static ASIDE: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

impl Cache {
    /// Under `folder`; nothing is kept when it cannot be made.
    pub(crate) fn at(folder: Option<&Path>) -> Self {
        let folder = folder.filter(|folder| std::fs::create_dir_all(folder).is_ok()).map(Path::to_owned);
        Self { folder }
    }

    /// Machine code of `source`, from the cache or compiled now.
    ///
    /// # Errors
    /// As [`compile`].
    pub(crate) fn get(&self, source: &str, arch: &str) -> Result<Vec<u8>, CompileError> {
        let key = crate::lower::fingerprint(source.as_bytes());
        let path = self
            .folder
            .as_ref()
            .map(|folder| folder.join(format!("{key:016x}-{}.{arch}.cubin", source.len())));
        if let Some(bytes) = path
            .as_ref()
            .and_then(|path| std::fs::read(path).ok())
            .filter(|bytes| bytes.starts_with(b"\x7fELF"))
        {
            return Ok(bytes);
        }
        let bytes = compile(source, arch)?;
        if let Some(path) = path {
            // Written aside and moved, so that a reader never sees half a file. A cache that cannot be written is slow,
            // not wrong.
            let number = ASIDE.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let aside = path.with_extension(format!("{}-{number}", std::process::id()));
            let _ = std::fs::write(&aside, &bytes).and_then(|()| std::fs::rename(&aside, &path));
        }
        Ok(bytes)
    }
}

/// Compiles the kernels that belong to no model for `arch`. Needs no GPU.
///
/// # Errors
/// When one does not compile.
pub fn check_own_kernels(arch: &str) -> Result<(), CompileError> {
    for source in [include_str!("kernels/stage.cu"), include_str!("kernels/smid.cu")] {
        compile(source, arch)?;
    }
    for kind in [Kind::F32, Kind::F16, Kind::Bf16] {
        compile(&crate::verify::text(kind), arch)?;
    }
    Ok(())
}

/// Lowers `graph` as one segment and compiles its kernels for `arch`; gives how many there are. Needs no GPU.
///
/// # Errors
/// When layers are not supported, or a kernel does not compile.
pub fn check_kernels(graph: &graph::Graph, precision: crate::Precision, arch: &str) -> Result<usize, String> {
    let missing = crate::lower::unsupported(graph);
    if !missing.is_empty() {
        return Err(format!("not supported: {}", missing.join(", ")));
    }
    let segments = graph::segment(graph, &graph::SegmentOptions::default());
    let lowered: Lowered = crate::lower::lower(graph, &segments, precision, false)?;
    compile(&source(&lowered.kernels), arch).map_err(|error| error.to_string())?;
    Ok(lowered.kernels.len())
}
