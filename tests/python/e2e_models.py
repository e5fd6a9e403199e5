"""Asks served models for answers to fresh random inputs and compares them with onnxruntime's.

    e2e_models.py HOST:PORT FOLDER SEED NAME...

FOLDER/NAME.onnx is the file that is served as NAME. Inputs differ from seed to seed; a failure prints what to repeat.
Each is asked with 1 up to max_batch_size rows, those with free dimensions in two shapes each.
"""

import pathlib
import sys
import zlib

import numpy
import onnxruntime
import tritonclient.http as http
from tritonclient.utils import triton_to_np_dtype

# Largest relative norm of a difference between two float programs of one model.
TOLERANCE = 1e-4

# Sizes of free dimensions after the first, two ways each.
FREE = {
    "ocr_det": [[64, 96], [96, 160]],
    "ocr_rec": [[48, 64], [48, 160]],
    "ocr_cls": [[48, 192], [48, 96]],
    "yolo_320n": [[160, 96], [64, 128]],
    "mtcnn_pnet": [[24, 31], [40, 12]],
}

# Inputs that are no pictures: the numbers they may hold.
TOKENS = {"magika": 257}


def shapes(name, shape, batch_max):
    """Every shape to ask for one input with."""
    rows = range(1, batch_max + 1) if batch_max > 0 else [1]
    open_dims = [place for place, size in enumerate(shape) if size < 0 and place > 0]
    for count in rows:
        for sizes in FREE[name] if open_dims else [[]]:
            assert len(sizes) == len(open_dims), f"{name} {shape}: FREE lists {sizes}"
            bound = [count if size < 0 and place == 0 else size for place, size in enumerate(shape)]
            for place, size in zip(open_dims, sizes, strict=True):
                bound[place] = size
            yield bound


def strokes(generator, shape):
    """Pages of something like letters, without which a text detector sees nothing and answers zeros."""
    pages = numpy.ones(shape)
    for page in pages:
        for top in range(4, shape[2] - 18, 28):
            for left in range(4, shape[3] - 12, 12):
                for _ in range(3):
                    down, right = generator.integers(0, 14), generator.integers(0, 8)
                    if generator.random() < 0.5:
                        page[:, top : top + 16, left + right : left + right + 2] = -1
                    else:
                        page[:, top + down : top + down + 2, left : left + 10] = -1
    return pages + 0.05 * generator.standard_normal(shape)


def values(generator, name, shape, dtype):
    if dtype.kind in "iu":
        return generator.integers(0, TOKENS[name], shape).astype(dtype)
    if name.startswith("ocr_"):
        return strokes(generator, shape).astype(dtype)
    return generator.standard_normal(shape).astype(dtype)


def reference(session, output, port, array):
    """onnxruntime's answer; row by row where the file fixes the batch at one."""
    rows = session.get_inputs()[0].shape[0]
    parts = [array] if rows != 1 else [array[row : row + 1] for row in range(len(array))]
    return numpy.concatenate([session.run([output], {port: part})[0] for part in parts])


def difference(answer, expected):
    """Relative norm of the difference of two tensors; an expected answer of nothing but zeros would prove nothing."""
    scale = numpy.linalg.norm(expected.ravel().astype(numpy.float64))
    assert scale > 1e-3, "onnxruntime's answer is all but zero"
    return numpy.linalg.norm((answer.astype(numpy.float64) - expected).ravel()) / scale


def check(client, folder, seed, name):
    """How many questions were asked, and the largest difference found."""
    session = onnxruntime.InferenceSession(folder / f"{name}.onnx", providers=["CPUExecutionProvider"])
    metadata = client.get_model_metadata(name)
    batch_max = client.get_model_config(name)["max_batch_size"]
    expected_ports = [[port.name for port in ports] for ports in (session.get_inputs(), session.get_outputs())]
    ports = [[port["name"] for port in metadata[side]] for side in ("inputs", "outputs")]
    assert ports == expected_ports, f"{name}: ports {ports}, the file has {expected_ports}"
    assert len(metadata["inputs"]) == 1, f"{name}: these checks know one input"
    [port] = metadata["inputs"]
    declared = session.get_inputs()[0].shape
    assert batch_max > 0 or declared[0] == 1, f"{name}: no batch of {declared}"
    generator = numpy.random.default_rng([seed, zlib.crc32(name.encode())])
    asked, worst = 0, 0.0
    for shape in shapes(name, port["shape"], batch_max):
        array = values(generator, name, shape, numpy.dtype(triton_to_np_dtype(port["datatype"])))
        question = http.InferInput(port["name"], shape, port["datatype"])
        question.set_data_from_numpy(array, binary_data=True)
        wanted = [http.InferRequestedOutput(output, binary_data=True) for output in ports[1]]
        result = client.infer(name, [question], outputs=wanted)
        for output in ports[1]:
            answer, expected = result.as_numpy(output), reference(session, output, port["name"], array)
            what = f"{name} {shape} {output}"
            assert answer.shape == expected.shape, f"{what}: shape {answer.shape}, not {expected.shape}"
            assert answer.dtype == expected.dtype, f"{what}: type {answer.dtype}, not {expected.dtype}"
            found = difference(answer, expected)
            assert found < TOLERANCE, f"{what}: relative difference {found:.1e}"
            asked, worst = asked + 1, max(worst, found)
    return asked, worst


def main():
    url, folder, seed, names = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
    client = http.InferenceServerClient(url, connection_timeout=600, network_timeout=600)
    failed = 0
    for name in names:
        try:
            asked, worst = check(client, folder, seed, name)
        except Exception as error:  # noqa: BLE001: every failure is reported, none stops the rest
            failed += 1
            print(f"FAILED {name} (seed {seed}): {error}", flush=True)
        else:
            print(f"ok {name}: {asked} answers, largest relative difference {worst:.1e}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
