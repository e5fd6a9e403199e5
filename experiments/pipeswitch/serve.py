"""Serves more models than the device has memory for, and switches between them over HTTP.

usage: serve.py RADDLE OUT.csv WEIGHTS_MIB MODEL…
"""

import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

import numpy

KINDS = {"FP32": numpy.float32, "INT64": numpy.int64}


def ask(url, body=None, headers=None):
    request = urllib.request.Request(url, data=body, headers=headers or {})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return reply.read(), reply.headers


def build(url, name, seed):
    """A request's body, and the length of its JSON part."""
    metadata = json.loads(ask(f"{url}/v2/models/{name}")[0])
    generator = numpy.random.default_rng(seed)
    inputs, data = [], b""
    for port in metadata["inputs"]:
        shape = [1 if size < 0 else size for size in port["shape"]]
        if port["datatype"] == "FP32":
            values = generator.standard_normal(shape).astype(numpy.float32)
        elif "mask" in port["name"]:
            values = numpy.ones(shape, numpy.int64)
        else:
            values = generator.integers(0, 2, shape)
        raw = values.astype(KINDS[port["datatype"]]).tobytes()
        parameters = {"binary_data_size": len(raw)}
        inputs.append({"name": port["name"], "datatype": port["datatype"], "shape": shape, "parameters": parameters})
        data += raw
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    return head + data, len(head)


def infer(url, name, request):
    body, length = request
    begin = time.perf_counter()
    reply, headers = ask(f"{url}/v2/models/{name}/infer", body, {"Inference-Header-Content-Length": str(length)})
    taken = time.perf_counter() - begin
    return reply[int(headers["Inference-Header-Content-Length"]) :], taken * 1e3


def main():
    raddle, out, weights, *models = sys.argv[1:]
    folder = tempfile.mkdtemp()
    subprocess.run([raddle, "zoo", "-o", folder, *models], check=True, stdout=subprocess.DEVNULL)
    command = [raddle, "serve", folder, "--http-port", "0", "--device", "cuda:0", "--policy", "pipeswitch"]
    command += ["--weights-mib", weights, "--max-batch-size", "1", "--journal", f"{folder}/journal"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    url = None
    for line in server.stderr:
        if "listening on" in line:
            url = line.split("listening on ")[1].strip()
        if "ERROR" in line:
            print(line.rstrip())
        if "ready:" in line:
            print(line.strip())
            break
    requests = {name: build(url, name, 1) for name in models}
    answers = {name: infer(url, name, requests[name])[0] for name in models}
    rows, wrong = [], 0
    random.seed(1)
    last = None
    for _ in range(60):
        name = random.choice(models)
        answer, taken = infer(url, name, requests[name])
        wrong += answer != answers[name]
        rows.append((name, "warm" if name == last else "switched", taken))
        last = name
    with open(out, "w") as table:
        table.write("model,state,ms\n")
        table.writelines(f"{name},{state},{taken:.3f}\n" for name, state, taken in rows)
    for name in models:
        for state in ["warm", "switched"]:
            times = [taken for model, kind, taken in rows if (model, kind) == (name, state)]
            if times:
                print(f"serve {name:<14} {state:<9} p50 {statistics.median(times):.2f} ms of {len(times)}")
    metrics = ask(f"{url}/metrics")[0].decode()
    failed = [line for line in metrics.splitlines() if line.startswith("nv_inference_request_failure") and not line.endswith(" 0")]
    server.terminate()
    print(f"serve: {wrong} of {len(rows)} answers differ from the first; exit {server.wait(30)}; failures {failed}")
    print(subprocess.run([raddle, "replay", f"{folder}/journal"], capture_output=True, text=True).stdout.strip()[-300:])


if __name__ == "__main__":
    main()
