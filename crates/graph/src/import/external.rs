//! Reads external tensor data, and puts it into the model, so that nothing later opens a file by a name from the model.
//!
//! A location is followed from the model's own folder, one component at a time and never through a link; what it ends at
//! must be a regular file of one name on the same file system, and hold what the tensor needs.

use super::ImportLimits;
use super::error::Problem;
use super::validate::{data_bytes, tensors_mut};
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use tract_onnx::pb::tensor_proto::DataLocation;
use tract_onnx::pb::{ModelProto, TensorProto};
use vocab::Bytes;

/// Replaces every reference to external data by the data. `folder` is where the model lies; without it there is none.
pub(crate) fn inline(
    proto: &mut ModelProto,
    folder: Option<&Path>,
    limits: &ImportLimits,
    problems: &mut Vec<Problem>,
) {
    let Some(graph) = &mut proto.graph else { return };
    let mut left = limits.external;
    let mut opened: Option<OwnedFd> = None;
    tensors_mut(graph, &mut |tensor| {
        if tensor.data_location != Some(DataLocation::External as i32) {
            return;
        }
        match read(tensor, folder, &mut opened, &mut left) {
            Ok(data) => {
                tensor.raw_data = data;
                tensor.data_location = None;
                tensor.external_data.clear();
            }
            Err(why) => {
                // Emptied, so that validation does not complain about the same tensor again.
                tensor.data_location = Some(DataLocation::External as i32);
                problems.push(Problem::External { name: tensor.name.clone(), why });
            }
        }
    });
}

/// Where a tensor says its data lies.
struct Extent<'a> {
    location: &'a str,
    offset: u64,
    length: Option<u64>,
}

fn read(
    tensor: &TensorProto,
    folder: Option<&Path>,
    opened: &mut Option<OwnedFd>,
    left: &mut Bytes,
) -> Result<Vec<u8>, String> {
    let extent = extent(tensor)?;
    let folder = folder.ok_or("needs the model's folder; load the model from a file")?;
    let needed = data_bytes(tensor).ok_or("belongs to a tensor without a definite size")?;
    if let Some(length) = extent.length.filter(|length| *length != needed) {
        return Err(format!("has {length} bytes where the tensor needs {needed}"));
    }
    if needed > left.0 {
        return Err(format!(
            "exceeds what is left of the limit, {left}; raise the limit if you trust the file"
        ));
    }
    if opened.is_none() {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let start = nix::fcntl::open(folder, flags, Mode::empty());
        *opened = Some(start.map_err(|error| format!("has no folder to lie in: {error}"))?);
    }
    let root = opened.as_ref().ok_or("has no folder to lie in")?;
    let file = follow(root, extent.location)?;
    let size = file.metadata().map_err(|error| error.to_string())?.len();
    let end = extent.offset.checked_add(needed).filter(|end| *end <= size);
    if end.is_none() {
        let (offset, location) = (extent.offset, extent.location);
        return Err(format!("runs past the end of \"{location}\": {needed} bytes at {offset} of {size}"));
    }
    let length = usize::try_from(needed).map_err(|_| "does not fit into memory")?;
    let mut data = vec![0; length];
    file.read_exact_at(&mut data, extent.offset).map_err(|error| format!("cannot be read: {error}"))?;
    left.0 -= needed;
    Ok(data)
}

fn extent(tensor: &TensorProto) -> Result<Extent<'_>, String> {
    let value = |key: &str| {
        let mut entries = tensor.external_data.iter().filter(|entry| entry.key == key);
        let first = entries.next().map(|entry| entry.value.as_str());
        if entries.next().is_some() { Err(format!("gives \"{key}\" twice")) } else { Ok(first) }
    };
    let number = |key: &str| {
        let parse =
            |text: &str| text.parse::<u64>().map_err(|_| format!("has {key} \"{text}\", not a number"));
        value(key)?.map(parse).transpose()
    };
    Ok(Extent {
        location: value("location")?.ok_or("names no location")?,
        offset: number("offset")?.unwrap_or(0),
        length: number("length")?,
    })
}

/// Opens the file that `location` names below `root`.
fn follow(root: &OwnedFd, location: &str) -> Result<File, String> {
    let refused = |why: &str| format!("at \"{}\" {why}", location.escape_default());
    if location.contains('\0') {
        return Err(refused("has a zero byte in its name"));
    }
    if location.starts_with('/') {
        return Err(refused("is absolute; it must lie in the model's folder"));
    }
    let components: Vec<&str> = location.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let Some((name, folders)) = components.split_last() else { return Err(refused("names no file")) };
    if components.contains(&"..") {
        return Err(refused("leaves the model's folder"));
    }
    let open = |at: &OwnedFd, name: &str, extra: OFlag| {
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | extra;
        openat(at.as_fd(), name, flags, Mode::empty()).map_err(|error| match error {
            nix::errno::Errno::ELOOP => refused("goes through a symbolic link"),
            nix::errno::Errno::ENOTDIR if !extra.is_empty() => {
                refused("goes through something that is no folder")
            }
            other => refused(&format!("cannot be opened: {other}")),
        })
    };
    let mut folder: Option<OwnedFd> = None;
    for part in folders {
        folder = Some(open(folder.as_ref().unwrap_or(root), part, OFlag::O_DIRECTORY)?);
    }
    let file = File::from(open(folder.as_ref().unwrap_or(root), name, OFlag::empty())?);
    let about = file.metadata().map_err(|error| refused(&error.to_string()))?;
    if !about.is_file() {
        return Err(refused("is not a regular file"));
    }
    if about.nlink() != 1 {
        return Err(refused("has other names (hard links); copy it"));
    }
    let home = File::from(root.try_clone().map_err(|error| refused(&error.to_string()))?);
    if home.metadata().map_err(|error| refused(&error.to_string()))?.dev() != about.dev() {
        return Err(refused("lies on another file system"));
    }
    Ok(file)
}
