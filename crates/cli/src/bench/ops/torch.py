# Times PyTorch expressions, one for each line of JSON on standard input: seconds of one run, the median of many, the cache emptied
# before each by reading more than it holds, as the bench itself does. A line without an expression is for the last one again.
import json, statistics, sys

import torch
import torch.nn.functional as F

print(json.dumps({"version": torch.__version__, "device": torch.cuda.get_device_name(0)}), flush=True)
torch.manual_seed(0)
flush, flushed = torch.randn(64 << 20, device="cuda"), torch.empty((), device="cuda")


def randn(*shape, dtype=torch.float32):
    made = torch.randn(*shape, device="cuda")
    return made.to(dtype)


def randint(low, high, shape, dtype=torch.int64):
    return torch.randint(low, high, shape, device="cuda", dtype=dtype)


def batch(call, runs):
    events = []
    for _ in range(runs):
        torch.sum(flush, 0, out=flushed)
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        events.append((start, end))
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in events) / 1e3


names = call = None
for line in sys.stdin:
    case = json.loads(line)
    try:
        if "setup" in case:
            names = {"torch": torch, "F": F, "randn": randn, "randint": randint}
            exec(case["setup"], names)
            call = eval("lambda: (" + case["call"] + ")", names)
        with torch.no_grad():
            call()
            torch.cuda.synchronize()
            runs = int(min(100, max(3, case["span"] / max(batch(call, 2), 1e-6))))
            answer = {"seconds": batch(call, runs)}
    except Exception as error:
        answer = {"error": str(error).splitlines()[0][:200] if str(error) else type(error).__name__}
    if case["last"]:
        names = call = None
        torch.cuda.empty_cache()
    print(json.dumps(answer), flush=True)
