"""Answers of onnxruntime in single precision: reference.py MODEL.onnx FOLDER…

Each folder has inputs.csv, a line "name,dtype,shape" (sizes separated by x) for each input, and the bytes of input N in
inN.bin. The bytes of output N go to outN.bin beside them.
"""

import pathlib
import sys

import numpy
import onnxruntime

options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
for folder in map(pathlib.Path, sys.argv[2:]):
    inputs = {}
    for place, line in enumerate((folder / "inputs.csv").read_text().splitlines()):
        name, dtype, shape = line.split(",")
        sizes = [int(size) for size in shape.split("x") if size]
        inputs[name] = numpy.fromfile(folder / f"in{place}.bin", dtype).reshape(sizes)
    for place, output in enumerate(session.run(None, inputs)):
        numpy.ascontiguousarray(output).tofile(folder / f"out{place}.bin")
