"""Drives a running server through the real tritonclient: one line a check, exit status 1 when one fails.

usage: client_http.py HOST:PORT MODEL [--onnx FILE] [--free-size N] [--requests N]

Everything about MODEL is read from its metadata. With --onnx, outputs are compared with onnxruntime's.
"""

import argparse
import json
import socket
import sys
import traceback
import urllib.error
import urllib.request

import numpy as np
import tritonclient.http as http
from tritonclient.utils import InferenceServerException, triton_to_np_dtype

CHECKS = []


def check(function):
    """Registers a check; its name is what the line says."""
    CHECKS.append(function)
    return function


class Subject:
    """A client, a model, and its inputs with values of any number of rows."""

    def __init__(self, options):
        self.url = options.url
        self.name = options.model
        self.options = options
        self.client = http.InferenceServerClient(options.url, concurrency=16)
        self.metadata = self.client.get_model_metadata(self.name)
        self.batch_max = self.client.get_model_config(self.name)["max_batch_size"]
        self.outputs = [output["name"] for output in self.metadata["outputs"]]

    def arrays(self, rows=1, seed=7):
        random = np.random.default_rng(seed)
        made = {}
        for tensor in self.metadata["inputs"]:
            shape = list(tensor["shape"])
            if self.batch_max > 0:
                shape[0] = rows
            shape = [self.options.free_size if size < 0 else size for size in shape]
            dtype = np.dtype(triton_to_np_dtype(tensor["datatype"]))
            if dtype.kind == "f":
                made[tensor["name"]] = random.standard_normal(shape).astype(dtype)
            elif dtype.kind == "b":
                made[tensor["name"]] = random.integers(0, 2, shape).astype(dtype)
            else:
                made[tensor["name"]] = random.integers(0, 16, shape).astype(dtype)
        return made

    def inputs(self, arrays, binary=True):
        listed = []
        for tensor in self.metadata["inputs"]:
            array = arrays[tensor["name"]]
            listed.append(http.InferInput(tensor["name"], list(array.shape), tensor["datatype"]))
            listed[-1].set_data_from_numpy(array, binary_data=binary)
        return listed

    def infer(self, arrays, binary_in=True, binary_out=True, **more):
        wanted = [http.InferRequestedOutput(name, binary_data=binary_out) for name in self.outputs]
        result = self.client.infer(self.name, self.inputs(arrays, binary_in), outputs=wanted, **more)
        return {name: result.as_numpy(name) for name in self.outputs}

    def refused(self, status, *parts, inputs=None, model=None, **more):
        """The text of an infer that must fail with `status` and words that hold all `parts`."""
        try:
            self.client.infer(model or self.name, inputs or self.inputs(self.arrays()), **more)
        except InferenceServerException as error:
            assert error.status() == str(status), f"status {error.status()}, not {status}: {error.message()}"
            for part in parts:
                assert part in error.message(), f"{part!r} is not in {error.message()!r}"
            return error.message()
        raise AssertionError("the request was answered")

    def statistics(self):
        return self.client.get_inference_statistics(self.name)["model_stats"][0]

    def fetch(self, path, data=None, headers=None, method=None):
        """Status, headers and body of a plain request."""
        request = urllib.request.Request(f"http://{self.url}{path}", data=data, headers=headers or {}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:
                return reply.status, reply.headers, reply.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read()

    def error_text(self, status, path, **more):
        found, _, body = self.fetch(path, **more)
        assert found == status, f"{path}: status {found}, not {status}: {body[:200]}"
        return json.loads(body)["error"]

    def raw(self, payload):
        """What the server sends back on a socket that says `payload` and then nothing more."""
        host, port = self.url.split(":")
        received = b""
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            try:
                connection.sendall(payload)
                connection.shutdown(socket.SHUT_WR)
                while part := connection.recv(65536):
                    received += part
            except TimeoutError:
                raise
            except OSError:
                pass  # the server may close as soon as it has seen enough
        return received


def same(left, right):
    for name, array in left.items():
        assert array.dtype == right[name].dtype and array.shape == right[name].shape, f"{name}: another type or shape"
        assert array.tobytes() == right[name].tobytes(), f"{name}: other values"


def close(left, right):
    for name, array in left.items():
        np.testing.assert_allclose(array, right[name], rtol=1e-3, atol=1e-4, err_msg=name)


@check
def health(subject):
    assert subject.client.is_server_live()
    assert subject.client.is_server_ready()
    assert subject.client.is_model_ready(subject.name)
    assert subject.client.is_model_ready(subject.name, subject.metadata["versions"][-1])
    assert not subject.client.is_model_ready("no-such-model")
    assert not subject.client.is_model_ready(subject.name, "999999")
    assert json.loads(subject.fetch("/v2/health/live")[2]) == {"live": True}
    assert json.loads(subject.fetch("/v2/health/ready")[2]) == {"ready": True}


@check
def server_metadata(subject):
    metadata = subject.client.get_server_metadata()
    assert metadata["name"] and metadata["version"]
    for extension in ["binary_tensor_data", "classification", "statistics", "model_configuration", "schedule_policy"]:
        assert extension in metadata["extensions"], extension


@check
def model_metadata_and_config(subject):
    version = subject.metadata["versions"][-1]
    assert subject.client.get_model_metadata(subject.name, version) == subject.metadata
    config = subject.client.get_model_config(subject.name, version)
    assert config["name"] == subject.name and config["platform"]
    for side in ["input", "output"]:
        for tensor, configured in zip(subject.metadata[side + "s"], config[side], strict=True):
            assert configured["name"] == tensor["name"]
            assert configured["data_type"] == "TYPE_" + tensor["datatype"]
            dims = tensor["shape"][1:] if config["max_batch_size"] > 0 else tensor["shape"]
            assert configured["dims"] == dims, configured
    assert config["model_transaction_policy"]["decoupled"] is False


@check
def repository_index(subject):
    index = subject.client.get_model_repository_index()
    mine = [entry for entry in index if entry["name"] == subject.name]
    assert mine and all(entry["state"] == "READY" for entry in mine), index
    assert all("reason" not in entry for entry in mine)


@check
def json_and_binary_agree_to_the_bit(subject):
    arrays = subject.arrays()
    reference = subject.infer(arrays)
    half_in = any(tensor["datatype"] == "FP16" for tensor in subject.metadata["inputs"])
    half_out = any(tensor["datatype"] == "FP16" for tensor in subject.metadata["outputs"])
    for binary_in in [True] if half_in else [True, False]:
        for binary_out in [True] if half_out else [True, False]:
            same(reference, subject.infer(arrays, binary_in, binary_out))


@check
def outputs_nobody_named(subject):
    arrays = subject.arrays()
    result = subject.client.infer(subject.name, subject.inputs(arrays))
    same(subject.infer(arrays), {name: result.as_numpy(name) for name in subject.outputs})
    reply = result.get_response()
    assert reply["model_name"] == subject.name and reply["model_version"] == subject.metadata["versions"][-1]
    assert "id" not in reply


@check
def request_id_comes_back(subject):
    result = subject.client.infer(subject.name, subject.inputs(subject.arrays()), request_id='a "b" 7')
    assert result.get_response()["id"] == 'a "b" 7'


@check
def outputs_equal_onnxruntime(subject):
    if not subject.options.onnx:
        return
    import onnxruntime

    session = onnxruntime.InferenceSession(subject.options.onnx, providers=["CPUExecutionProvider"])
    for rows in {1, max(1, min(3, subject.batch_max))}:
        arrays = subject.arrays(rows, seed=rows)
        expected = dict(zip(subject.outputs, session.run(subject.outputs, arrays), strict=True))
        close(expected, subject.infer(arrays))


@check
def rows_of_a_batch_are_answered_as_alone(subject):
    rows = min(4, subject.batch_max)
    if rows < 2:
        return
    arrays = subject.arrays(rows)
    together = subject.infer(arrays)
    for row in range(rows):
        alone = subject.infer({name: array[row : row + 1] for name, array in arrays.items()})
        close(alone, {name: array[row : row + 1] for name, array in together.items()})


@check
def classification(subject):
    arrays = subject.arrays(min(2, max(1, subject.batch_max)))
    output = subject.outputs[0]
    scores = subject.infer(arrays)[output]
    scores = scores.reshape(scores.shape[0] if subject.batch_max > 0 else 1, -1)
    count = min(3, scores.shape[1])
    for binary in [True, False]:
        wanted = [http.InferRequestedOutput(output, binary_data=binary, class_count=count)]
        result = subject.client.infer(subject.name, subject.inputs(arrays), outputs=wanted)
        assert result.get_output(output)["datatype"] == "BYTES"
        texts = result.as_numpy(output)
        texts = texts.reshape(scores.shape[0], count)
        for row, expected in zip(texts, scores, strict=True):
            values = []
            for text in row:
                text = text.decode() if isinstance(text, bytes) else text
                value, index = text.split(":")[:2]
                np.testing.assert_allclose(float(value), expected[int(index)], atol=1e-5)
                values.append(expected[int(index)])
            assert values == sorted(values, reverse=True)
            assert values[0] == expected.max()


@check
def every_priority_is_taken(subject):
    arrays = subject.arrays()
    reference = subject.infer(arrays)
    for priority in [0, 1, 2, 3, 9, 2**32, 2**64 - 1]:
        same(reference, subject.infer(arrays, priority=priority))


@check
def timeouts_count_in_microseconds(subject):
    arrays = subject.arrays()
    same(subject.infer(arrays), subject.infer(arrays, timeout=60_000_000))
    same(subject.infer(arrays), subject.infer(arrays, timeout=2**63))
    text = subject.refused(503, "Request timeout expired", timeout=1)
    assert len(text) > len("Request timeout expired"), "the reason is missing"
    subject.refused(503, "Request timeout expired", parameters={"slo_us": 1})
    same(subject.infer(arrays), subject.infer(arrays, parameters={"slo_us": 60_000_000}))


@check
def parameters_of_the_wrong_type(subject):
    inputs = subject.inputs(subject.arrays())
    subject.refused(400, "priority", priority=-1, inputs=inputs)
    subject.refused(400, "priority", priority=1.5, inputs=inputs)
    subject.refused(400, "timeout", timeout=-1, inputs=inputs)
    subject.refused(400, "timeout", timeout="soon", inputs=inputs)
    subject.refused(400, "slo_us", parameters={"slo_us": "soon"}, inputs=inputs)


@check
def sequences_are_ignored(subject):
    arrays = subject.arrays()
    same(subject.infer(arrays), subject.infer(arrays, sequence_id=5, sequence_start=True, sequence_end=True))


@check
def unknown_models_and_versions(subject):
    subject.refused(404, "Request for unknown model: 'no-such-model' is not found", model="no-such-model")
    subject.refused(404, f"Request for unknown model: '{subject.name}' version 999999 is not found", model_version="999999")
    newest = subject.metadata["versions"][-1]
    for version in [newest + "x", "+" + newest, "0" + newest, "-1", "18446744073709551616"]:
        subject.refused(404, f"version {version} is not found", model_version=version)
    for call in [subject.client.get_model_metadata, subject.client.get_model_config, subject.client.get_inference_statistics]:
        try:
            call("no-such-model")
        except InferenceServerException as error:
            assert "Request for unknown model: 'no-such-model' is not found" in error.message()
        else:
            raise AssertionError("an unknown model was described")


@check
def inputs_that_do_not_fit(subject):
    first = subject.metadata["inputs"][0]
    arrays = subject.arrays()
    array = arrays[first["name"]]

    def replaced(name, shape, datatype, data):
        listed = subject.inputs(arrays)
        listed[0] = http.InferInput(name, shape, datatype)
        listed[0].set_data_from_numpy(data)
        return listed

    shape = [*array.shape, 2]
    wide = np.zeros(shape, array.dtype)
    subject.refused(400, f"unexpected shape for input '{first['name']}' for model '{subject.name}'. Expected [",
                    inputs=replaced(first["name"], shape, first["datatype"], wide))
    other, other_dtype = ("INT8", np.int8) if first["datatype"] != "INT8" else ("FP32", np.float32)
    subject.refused(400, f"but model '{subject.name}' expects '{first['datatype']}'",
                    inputs=replaced(first["name"], list(array.shape), other, np.zeros(array.shape, other_dtype)))
    subject.refused(400, f"unexpected inference input 'nobody' for model '{subject.name}'",
                    inputs=replaced("nobody", list(array.shape), first["datatype"], array))
    subject.refused(400, "BYTES", inputs=replaced(first["name"], [1], "BYTES", np.array([b"x"], dtype=object)))
    subject.refused(400, f"unexpected inference output 'nobody' for model '{subject.name}'",
                    outputs=[http.InferRequestedOutput("nobody")])
    if subject.batch_max > 0:
        large = subject.arrays(subject.batch_max + 1)
        subject.refused(400, f"inference request batch-size must be <= {subject.batch_max} for '{subject.name}'",
                        inputs=subject.inputs(large))
    short = subject.inputs(arrays)
    short[0]._raw_data = short[0]._raw_data[:-1]
    short[0]._parameters["binary_data_size"] -= 1
    subject.refused(400, "input byte size mismatch for input", f"Expected {array.nbytes}, got {array.nbytes - 1}",
                    "[request id: q7]", inputs=short, request_id="q7")


@check
def many_at_once(subject):
    arrays = [subject.arrays(seed=seed) for seed in range(8)]
    expected = [subject.infer(one) for one in arrays]
    wanted = [http.InferRequestedOutput(name) for name in subject.outputs]
    flying = [
        (at % 8, subject.client.async_infer(subject.name, subject.inputs(arrays[at % 8]), outputs=wanted))
        for at in range(subject.options.requests)
    ]
    for at, handle in flying:
        result = handle.get_result()
        close(expected[at], {name: result.as_numpy(name) for name in subject.outputs})


@check
def statistics_count_exactly(subject):
    before = subject.statistics()
    rows = min(2, max(1, subject.batch_max))
    for _ in range(3):
        subject.infer(subject.arrays(rows))
    after = subject.statistics()
    assert after["name"] == subject.name and after["version"] == subject.metadata["versions"][-1]
    assert after["inference_count"] - before["inference_count"] == 3 * rows
    assert 1 <= after["execution_count"] - before["execution_count"] <= 3
    for field in ["success", "queue", "compute_input", "compute_infer", "compute_output"]:
        grown = after["inference_stats"][field]["count"] - before["inference_stats"][field]["count"]
        assert grown == 3, f"{field} grew by {grown}"
    assert after["inference_stats"]["fail"] == before["inference_stats"]["fail"]
    assert after["inference_stats"]["success"]["ns"] > before["inference_stats"]["success"]["ns"]
    assert sum(batch["compute_infer"]["count"] for batch in after["batch_stats"]) == after["execution_count"]
    everyone = subject.client.get_inference_statistics()["model_stats"]
    assert any(model["name"] == subject.name for model in everyone)


@check
def metrics_agree_with_statistics(subject):
    status, headers, body = subject.fetch("/metrics")
    assert status == 200 and headers["content-type"].startswith("text/plain")
    values = {}
    for line in body.decode().splitlines():
        if not line.startswith("#"):
            key, value = line.rsplit(" ", 1)
            assert key not in values, f"{key} is there twice"
            values[key] = float(value)
    statistics = subject.statistics()
    labels = f'{{model="{subject.name}",version="{statistics["version"]}"}}'
    assert values[f"nv_inference_request_success{labels}"] == statistics["inference_stats"]["success"]["count"]
    assert values[f"nv_inference_count{labels}"] == statistics["inference_count"]
    assert values[f"nv_inference_exec_count{labels}"] == statistics["execution_count"]
    assert values[f"nv_inference_request_duration_us{labels}"] == statistics["inference_stats"]["success"]["ns"] // 1000


@check
def raw_body(subject):
    if len(subject.metadata["inputs"]) != 1:
        return
    arrays = subject.arrays()
    (array,) = arrays.values()
    status, headers, body = subject.fetch(
        f"/v2/models/{subject.name}/infer", data=array.tobytes(), headers={"Inference-Header-Content-Length": "0"}
    )
    assert status == 200, body
    assert headers["content-type"] == "application/octet-stream"
    length = int(headers["inference-header-content-length"])
    result = http.InferenceServerClient.parse_response_body(body, header_length=length)
    same(subject.infer(arrays), {name: result.as_numpy(name) for name in subject.outputs})


@check
def methods_and_paths(subject):
    infer = f"/v2/models/{subject.name}/infer"
    assert subject.error_text(405, infer) == "Method Not Allowed"
    assert subject.error_text(405, "/v2/health/live", data=b"x") == "Method Not Allowed"
    assert subject.error_text(404, "/v2/nothing") == "Not Found"
    assert subject.error_text(404, "/") == "Not Found"
    assert "unknown model" in subject.error_text(404, "/v2/models/..%2f..%2fetc%2fpasswd")
    assert "unknown model" in subject.error_text(404, "/v2/models/%00")
    assert "UTF-8" in subject.error_text(400, "/v2/models/%ff")
    assert "unknown model" in subject.error_text(404, "/v2/models/" + "m" * 4000)


@check
def bodies_that_are_not_requests(subject):
    infer = f"/v2/models/{subject.name}/infer"
    for body in [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"inputs":[' + b"{" * 1000]:
        assert subject.error_text(400, infer, data=body)
    for length in ["-1", "x", "1e3", "99999999999999999999", "5000"]:
        text = subject.error_text(400, infer, data=b"{}", headers={"Inference-Header-Content-Length": length})
        assert "Inference-Header-Content-Length" in text, text
    text = subject.error_text(415, infer, data=b"\x1f\x8b", headers={"Content-Encoding": "gzip"})
    assert "Content-Encoding" in text
    huge = '{"inputs":[{"name":"%s","datatype":"%s","shape":[9223372036854775807,9223372036854775807],"data":[1]}]}'
    first = subject.metadata["inputs"][0]
    assert subject.error_text(400, infer, data=(huge % (first["name"], first["datatype"])).encode())


@check
def hostile_connections(subject):
    path = f"/v2/models/{subject.name}/infer".encode()
    claims = b"POST " + path + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999999\r\n\r\n{}"
    assert b" 413 " in subject.raw(claims).split(b"\r\n")[0]
    truncated = b"POST " + path + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n{}"
    assert b" 200 " not in subject.raw(truncated).split(b"\r\n")[0]
    for payload in [b"\0" * 1000, b"GET / HTTP/9.9\r\n\r\n", b"GET /v2 HTTP/1.1\r\n" + b"a: b\r\n" * 10_000 + b"\r\n"]:
        assert b" 200 " not in subject.raw(payload).split(b"\r\n")[0]
    both = b"POST " + path + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}"
    assert b" 200 " not in subject.raw(both).split(b"\r\n")[0]
    assert subject.client.is_server_live()
    subject.infer(subject.arrays())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("model")
    parser.add_argument("--onnx", help="the model's file, to compare outputs with onnxruntime's")
    parser.add_argument("--free-size", type=int, default=8, help="size of dimensions that may have any")
    parser.add_argument("--requests", type=int, default=64, help="requests sent at once")
    subject = Subject(parser.parse_args())
    failed = 0
    for function in CHECKS:
        name = function.__name__.replace("_", " ")
        try:
            function(subject)
        except Exception:  # noqa: BLE001: every failure is reported, none stops the rest
            failed += 1
            print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
        else:
            print(f"ok {name}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
