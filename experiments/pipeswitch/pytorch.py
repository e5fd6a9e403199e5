"""PyTorch's latency for the zoo: eager and CUDA-graph replay, pinned input to pinned output, its fastest settings.

usage: pytorch.py OUT.csv PRECISIONS BATCHES MODEL…   (precisions: tf32,fp16)
"""

import statistics
import sys
import time
import warnings

import torch
import torchvision
import transformers

warnings.filterwarnings("ignore")
RUNS = 100
TRANSFORMERS = {"bert_base", "gpt2"}
NAMES = {"resnext50": "resnext50_32x4d"}


def build(name):
    torch.manual_seed(0)
    if name == "bert_base":
        return transformers.BertModel(transformers.BertConfig())
    if name == "gpt2":
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False))
    options = {"weights": None}
    if name == "inception_v3":
        options |= {"aux_logits": False, "init_weights": False, "transform_input": False}
    return getattr(torchvision.models, NAMES.get(name, name))(**options)


def example(name, batch):
    if name in TRANSFORMERS:
        ids = torch.randint(0, 1000, (batch, 128))
        return (ids, torch.ones_like(ids)) if name == "bert_base" else (ids,)
    side = 299 if name == "inception_v3" else 224
    return (torch.randn(batch, 3, side, side),)


def first(output):
    return output if torch.is_tensor(output) else output[0]


def quantile(times, share):
    return sorted(times)[min(len(times) - 1, int(len(times) * share))] * 1e3


def measure(step, runs=RUNS):
    times = []
    for number in range(runs + 10):
        begin = time.perf_counter()
        step()
        torch.cuda.synchronize()
        if number >= 10:
            times.append(time.perf_counter() - begin)
    return times


def run(name, batch, precision, channels_last):
    half = precision == "fp16"
    model = build(name).eval().cuda()
    if half:
        model = model.half()
    form = torch.channels_last if channels_last else torch.contiguous_format
    if channels_last:
        model = model.to(memory_format=form)
    host = [x.half() if half and x.is_floating_point() else x for x in example(name, batch)]
    host = [x.contiguous(memory_format=form) if x.dim() == 4 else x for x in host]
    host = [x.pin_memory() for x in host]
    device = [x.cuda() for x in host]
    with torch.inference_mode():
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(5):
                output = first(model(*device))
            torch.cuda.synchronize()
            answer = torch.empty(output.shape, dtype=output.dtype).pin_memory()

            def eager():
                for to, of in zip(device, host):
                    to.copy_(of, non_blocking=True)
                answer.copy_(first(model(*device)), non_blocking=True)

            eager_times = measure(eager, 20)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                output = first(model(*device))

            def replay():
                for to, of in zip(device, host):
                    to.copy_(of, non_blocking=True)
                graph.replay()
                answer.copy_(output, non_blocking=True)

            return eager_times, measure(replay)


def main():
    out, precisions, batches, *names = sys.argv[1:]
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cuda.matmul.allow_tf32 = True
    with open(out, "w") as table:
        table.write("model,batch,precision,layout,eager_p50_ms,replay_p50_ms,replay_p5_ms,replay_p95_ms\n")
        for name in names:
            for precision in precisions.split(","):
                for batch in map(int, batches.split(",")):
                    layouts = [False] if name in TRANSFORMERS or name.startswith("vit") else [False, True]
                    for channels_last in layouts:
                        eager, replay = run(name, batch, precision, channels_last)
                        layout = "nhwc" if channels_last else "nchw"
                        row = [statistics.median(eager) * 1e3, statistics.median(replay) * 1e3]
                        row += [quantile(replay, 0.05), quantile(replay, 0.95)]
                        text = ",".join(f"{value:.4f}" for value in row)
                        table.write(f"{name},{batch},{precision},{layout},{text}\n")
                        table.flush()
                        print(f"torch {name:<14} b{batch:<2} {precision} {layout} eager {row[0]:.3f} replay {row[1]:.3f} ms", flush=True)


if __name__ == "__main__":
    main()
