"""Writes small ONNX files for a repository: ones that must be served, and ones that reach for what is not theirs.

    e2e_files.py REPOSITORY SECRET

REPOSITORY/NAME/1/model.onnx each. The hostile ones name SECRET, a file outside of the repository, as their weights.
"""

import pathlib
import sys

import numpy
from onnx import TensorProto, helper, numpy_helper

SIZE = 4


def model(weights):
    """y = x + weights, any number of rows."""
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", SIZE]) for name in ("x", "y")]
    node = helper.make_node("Add", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "sum", ports[:1], ports[1:], [weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def inline(values):
    return numpy_helper.from_array(numpy.asarray(values, numpy.float32), "w")


def external(location, dims=(SIZE,), **more):
    weights = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **more}.items():
        weights.external_data.add(key=key, value=str(value))
    return weights


def main():
    repository, secret = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    up = pathlib.Path(*[".."] * 32) / secret.relative_to("/")
    claimed = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1 << 40, SIZE], raw_data=b"\0" * 16)
    files = {
        "sum": inline([1, 2, 3, 4]),
        "beside": external("weights.bin"),
        "dotdot": external(up),
        "dotdot_within": external("../1/weights.bin"),
        "absolute": external(secret),
        "link": external("weights.bin"),
        "folder_link": external("data/secret.bin"),
        "beyond_end": external("weights.bin", offset=8),
        "huge_external": external("weights.bin", dims=[1 << 40, SIZE]),
        "negative_dims": external("weights.bin", dims=[-SIZE]),
        "overflowing_dims": external("weights.bin", dims=[1 << 62, 1 << 62]),
        "missing": external("nowhere.bin"),
        "huge_claim": claimed,
    }
    for name, weights in files.items():
        folder = repository / name / "1"
        folder.mkdir(parents=True)
        (folder / "model.onnx").write_bytes(model(weights).SerializeToString())
        if weights.data_location == TensorProto.EXTERNAL:
            (folder / "weights.bin").write_bytes(numpy.arange(SIZE, dtype=numpy.float32).tobytes())
    link = repository / "link" / "1" / "weights.bin"
    link.unlink()
    link.symlink_to(secret)
    (repository / "folder_link" / "1" / "data").symlink_to(secret.parent)


if __name__ == "__main__":
    main()
