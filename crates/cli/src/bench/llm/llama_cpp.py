# llama.cpp beside us: reads a line of JSON with token ids, answers with the seconds of prompt and further tokens.
# Arguments: the model, the threads, the tokens that there is room for.
import json, os, sys, tempfile

try:
    import xllamacpp
except ImportError as error:
    sys.exit(f"llama.cpp is not installed: {error}")

# Its log would fill the terminal: the end of it is shown if this fails.
log, terminal = tempfile.TemporaryFile(), os.dup(2)
os.dup2(log.fileno(), 2)


def show(*error):
    os.dup2(terminal, 2)
    log.seek(0)
    sys.stderr.write(b"".join(log.readlines()[-10:]).decode(errors="replace"))
    sys.__excepthook__(*error)


sys.excepthook = show
parameters = xllamacpp.CommonParams()
parameters.model.path = sys.argv[1]
parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = int(sys.argv[2])
parameters.n_ctx = int(sys.argv[3])
parameters.n_parallel = 1
parameters.n_gpu_layers = 0
server = xllamacpp.Server(parameters)
print(json.dumps({"version": xllamacpp.__version__}), flush=True)
for line in sys.stdin:
    task = json.loads(line)
    answer = server.handle_completions({
        "prompt": task["prompt"],
        "n_predict": task["tokens"],
        "temperature": 0,
        "ignore_eos": True,
        "cache_prompt": False,
    })
    times = answer.get("timings", {})
    right = times.get("prompt_n") == len(task["prompt"]) and times.get("predicted_n") == task["tokens"]
    # The first token comes out of the prompt; its time is not among the others'.
    found = {"prefill": times["prompt_ms"] / 1e3, "decode": times["predicted_ms"] / 1e3} if right else {"error": answer}
    print(json.dumps(found), flush=True)
