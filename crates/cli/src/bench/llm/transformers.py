# Hugging Face's transformers beside us, on the same GPU: reads a line of JSON with token ids, answers with the seconds of prompt and further
# tokens. Arguments: a folder, or a configuration in JSON whose weights are random; the number of the GPU.
import json, os, sys, time

try:
    import torch, transformers
except ImportError as error:
    sys.exit(f"transformers is not installed: {error}")

transformers.logging.set_verbosity_error()
device = torch.device("cuda", int(sys.argv[2]))
if os.path.isdir(sys.argv[1]):
    model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.bfloat16)
else:
    config = transformers.LlamaConfig(**json.loads(sys.argv[1]))
    torch.set_default_dtype(torch.bfloat16)
    with device:
        model = transformers.LlamaForCausalLM(config)
model = model.to(device).eval()
print(json.dumps({"version": transformers.__version__, "torch": torch.__version__}), flush=True)


def seconds(start):
    torch.cuda.synchronize()
    return time.perf_counter() - start


with torch.inference_mode():
    for line in sys.stdin:
        task = json.loads(line)
        torch.cuda.synchronize()
        start = time.perf_counter()
        ids = torch.tensor([task["prompt"]], device=device)
        found = model(ids, use_cache=True, logits_to_keep=1)
        ids = found.logits[:, -1:].argmax(-1)
        prefill = seconds(start)
        start = time.perf_counter()
        for _ in range(task["tokens"] - 1):
            found = model(ids, past_key_values=found.past_key_values, use_cache=True)
            ids = found.logits[:, -1:].argmax(-1)
            # Whoever streams a text looks at each token.
            ids.item()
        print(json.dumps({"prefill": prefill, "decode": seconds(start)}), flush=True)
