"""What a user of tritonclient sees of deadlines and priorities; the test that starts it reads the journal afterwards.

    e2e_client.py HOST:PORT CHECK

Prints one JSON object of what happened, for the test to go on with.
"""

import json
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy
import tritonclient.http as http
from tritonclient.utils import InferenceServerException

EXPIRED = "Request timeout expired"
SLOW, QUICK = "resnet18", "tiny_cnn"


class User:
    def __init__(self, url):
        self.url = url
        self.client = self.connected()
        self.threads = ThreadPoolExecutor(16)
        self.local = threading.local()
        self.random = numpy.random.default_rng(time.time_ns())

    def connected(self):
        return http.InferenceServerClient(self.url, concurrency=16, connection_timeout=600, network_timeout=600)

    def question(self, model, rows=1, sizes=None):
        port = self.client.get_model_metadata(model)["inputs"][0]
        shape = sizes or [rows, *port["shape"][1:]]
        tensor = http.InferInput(port["name"], shape, "FP32")
        tensor.set_data_from_numpy(self.random.standard_normal(shape).astype(numpy.float32))
        return [tensor]

    def ask(self, model, question, **terms):
        return self.client.infer(model, question, **terms)

    def flood(self, count, model, question, **terms):
        """Asks `count` times at once, each thread with a client of its own; returns once the server is busy with them."""

        def one():
            if not hasattr(self.local, "client"):
                self.local.client = self.connected()
            return self.local.client.infer(model, question, **terms)

        flying = [self.threads.submit(one) for _ in range(count)]
        # Some run when others wait.
        while self.waiting() == 0:
            assert pending(flying) > 0, "the server answered all before any was seen to wait"
        return flying

    def waiting(self):
        """How many requests wait, over all models."""
        with urllib.request.urlopen(f"http://{self.url}/metrics", timeout=60) as reply:
            lines = reply.read().decode().splitlines()
        gauge = "nv_inference_pending_request_count{"
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(gauge))

    def refused(self, model, question, **terms):
        """The text of a 503 that says the time is up."""
        try:
            self.client.infer(model, question, **terms)
        except InferenceServerException as error:
            assert error.status() == "503", error
            assert error.message().startswith(EXPIRED), error.message()
            return error.message()
        raise AssertionError("the request was answered")


def answered(result):
    values = result.as_numpy("logits")
    assert values is not None and numpy.isfinite(values).all()
    return values


def pending(flying):
    return sum(not flight.done() for flight in flying)


def impossible(user):
    """Deadlines that cannot be met, on an idle server and behind others."""
    question = user.question(SLOW, 2)
    texts = [user.refused(SLOW, question, timeout=1), user.refused(SLOW, question, timeout=500)]
    # One that is easily met is, and its answer is the one without a deadline.
    calm = answered(user.ask(SLOW, question, timeout=600_000_000))
    assert numpy.array_equal(calm, answered(user.ask(SLOW, question)))
    return {"texts": texts}


def passing(user):
    """Under first come, first served nobody is turned away: deadlines pass while requests wait and run."""
    slow, quick = user.question(SLOW, 2), user.question(QUICK)
    # While it runs: no run of the slow model is over so soon. On a busy machine the first may not even have begun.
    for timeout in [2_000, 4_000, 8_000, 16_000]:
        running = user.refused(SLOW, slow, timeout=timeout)
        if "its run was in segment" in running:
            break
    else:
        raise AssertionError(f"no deadline passed during a run: {running}")
    # While it waits behind others, which are not over when its answer comes.
    flying = user.flood(6, SLOW, slow)
    waiting = user.refused(QUICK, quick, timeout=2_000)
    left = pending(flying)
    assert left > 0, "the work ahead was over before the deadline was told"
    for flight in flying:
        answered(flight.result())
    assert user.waiting() == 0, "the gauge still counts a request that was told its end"
    return {"running": running, "waiting": waiting, "left": left}


def unprepared(user):
    """A deadline that passes while programs for a shape nobody asked for before are prepared."""
    text = user.refused("yolo_320n", user.question("yolo_320n", sizes=[1, 3, 320, 320]), timeout=1_000)
    # The same shape is prepared by now or soon, and then answered.
    result = user.ask("yolo_320n", user.question("yolo_320n", sizes=[1, 3, 320, 320]))
    assert numpy.isfinite(result.as_numpy("output0")).all()
    return {"text": text}


def overtaking(user):
    """A stream of batches of class 3 and, in the middle of it, requests of class 1."""
    slow, quick = user.question(SLOW, 2), user.question(QUICK)
    alone = answered(user.ask(SLOW, slow))
    flying = user.flood(8, SLOW, slow, priority=3)
    left = []
    for _ in range(5):
        answered(user.ask(QUICK, quick, priority=1))
        left.append(pending(flying))
    assert left[0] > 0, "the first request of class 1 was answered after all of class 3"
    for flight in flying:
        # Stopped and resumed in the middle, the answers are what they were.
        assert numpy.array_equal(answered(flight.result()), alone)
    return {"left": left}


def surface(user):
    """What only the command line decides: the limits and the policy's words."""
    client = user.client
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready(QUICK)
    assert client.get_server_metadata()["name"] == "raddle"
    states = {model["name"]: model["state"] for model in client.get_model_repository_index()}
    assert states == {SLOW: "READY", QUICK: "READY"}, states
    assert client.get_model_config(QUICK)["max_batch_size"] == 4
    before = client.get_inference_statistics(QUICK)["model_stats"][0]["inference_count"]
    question = user.question(QUICK, 3)
    binary = answered(user.ask(QUICK, question))
    wanted = [http.InferRequestedOutput("logits", binary_data=False)]
    question[0].set_data_from_numpy(user.random.standard_normal([3, *question[0].shape()[1:]]).astype("f4"), False)
    as_json = answered(user.ask(QUICK, question, outputs=wanted))
    question[0].set_data_from_numpy(question_values(question), True)
    assert numpy.allclose(answered(user.ask(QUICK, question)), as_json, rtol=1e-6)
    best = [http.InferRequestedOutput("logits", binary_data=True, class_count=2)]
    classes = user.ask(QUICK, question, outputs=best).as_numpy("logits")
    for row, texts in zip(as_json, classes, strict=True):
        assert [int(text.split(b":")[1]) for text in texts] == numpy.argsort(-row)[:2].tolist()
    flights = [client.async_infer(QUICK, question, request_id=str(at)) for at in range(32)]
    assert [flight.get_result().get_response()["id"] for flight in flights] == [str(at) for at in range(32)]
    after = client.get_inference_statistics(QUICK)["model_stats"][0]["inference_count"]
    assert after - before == 3 * (32 + 4), after - before
    assert binary.shape == as_json.shape
    return {}


def question_values(question):
    """The numbers of a question that was written as JSON."""
    return numpy.array(question[0]._data, numpy.float32).reshape(question[0].shape())


CHECKS = [impossible, passing, unprepared, overtaking, surface]

if __name__ == "__main__":
    check = {function.__name__: function for function in CHECKS}[sys.argv[2]]
    print(json.dumps(check(User(sys.argv[1]))))
