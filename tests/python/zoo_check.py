"""Checks ONNX files of the zoo and records what onnxruntime makes of them.

    zoo_check.py FOLDER

For each FOLDER/NAME.onnx: the ONNX checker with shape inference, then onnxruntime on two seeded rows. Tensors go to
FOLDER/NAME.VALUE.bin (little-endian, row-major), described in FOLDER/NAME.txt, one a line:

    input|output VALUE float32|int64 2x3x224x224
"""

import pathlib
import sys
import zlib

import numpy
import onnx
import onnxruntime

ROWS = 2


def image(generator, shape):
    """Rows that differ in colour, in coarse structure and in noise, so that networks tell them apart."""
    rows, channels, height, width = shape
    coarse = generator.standard_normal((rows, channels, 8, 8))
    tile = numpy.ones((1, 1, -(-height // 8), -(-width // 8)))
    colour = generator.standard_normal((rows, channels, 1, 1))
    structure = numpy.kron(coarse, tile)[:, :, :height, :width]
    return (colour + structure + generator.standard_normal(shape)) / numpy.sqrt(3)


def table_rows(graph, value):
    """How many rows the embedding table has that `value` looks up, or None where it is no token number."""
    tables = {weight.name: weight.dims[0] for weight in graph.initializer if weight.dims}
    for node in graph.node:
        if node.op_type == "Gather" and node.input[1] == value:
            return tables[node.input[0]]
    return None


def feed(generator, graph, port):
    """A seeded tensor for one input."""
    shape = [ROWS if isinstance(size, str) else size for size in port.shape]
    if port.type == "tensor(float)":
        values = image(generator, shape) if len(shape) == 4 else generator.standard_normal(shape)
        return values.astype(numpy.float32)
    rows = table_rows(graph, port.name)
    if rows is not None:
        return generator.integers(0, rows, shape, dtype=numpy.int64)
    mask = numpy.ones(shape, numpy.int64)
    mask[1, shape[1] // 2 :] = 0
    return mask


def check(path):
    """Checks and runs one file."""
    onnx.checker.check_model(str(path), full_check=True)
    graph = onnx.load(str(path)).graph
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    generator = numpy.random.default_rng(zlib.crc32(path.stem.encode()))
    inputs = {port.name: feed(generator, graph, port) for port in session.get_inputs()}
    names = [port.name for port in session.get_outputs()]
    outputs = dict(zip(names, session.run(names, inputs)))
    lines = []
    for kind, tensors in (("input", inputs), ("output", outputs)):
        for name, tensor in tensors.items():
            tensor.tofile(path.with_suffix(f".{name}.bin"))
            lines.append(f"{kind} {name} {tensor.dtype} {'x'.join(map(str, tensor.shape))}\n")
    path.with_suffix(".txt").write_text("".join(lines))


def main():
    paths = sorted(pathlib.Path(sys.argv[1]).glob("*.onnx"))
    if not paths:
        sys.exit(f"no .onnx file in {sys.argv[1]}; write one with the example zoo_write")
    for path in paths:
        check(path)


if __name__ == "__main__":
    main()
