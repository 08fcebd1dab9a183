"""Times a denoiser and an autoencoder of diffusers with random weights: prints one line of JSON."""

import json
import statistics
import sys
import time

import torch

model, size, dtype, device, steps = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5])
dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[dtype]
torch.backends.cuda.matmul.allow_tf32 = False

from diffusers import AutoencoderKL  # noqa: E402


def autoencoder(latents, quant):
    return AutoencoderKL(
        in_channels=3, out_channels=3, latent_channels=latents, layers_per_block=2, norm_num_groups=32, sample_size=size,
        block_out_channels=(128, 256, 512, 512), down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
        use_quant_conv=quant, use_post_quant_conv=quant,
    )


def unet():
    from diffusers import UNet2DConditionModel

    if model == "sd15":
        return UNet2DConditionModel(
            sample_size=64, in_channels=4, out_channels=4, layers_per_block=2, block_out_channels=(320, 640, 1280, 1280),
            down_block_types=("CrossAttnDownBlock2D",) * 3 + ("DownBlock2D",), up_block_types=("UpBlock2D",) + ("CrossAttnUpBlock2D",) * 3,
            cross_attention_dim=768, attention_head_dim=8,
        )
    return UNet2DConditionModel(
        sample_size=128, in_channels=4, out_channels=4, layers_per_block=2, block_out_channels=(320, 640, 1280),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"), transformer_layers_per_block=(1, 2, 10),
        cross_attention_dim=2048, attention_head_dim=(5, 10, 20), use_linear_projection=True, addition_embed_type="text_time",
        addition_time_embed_dim=256, projection_class_embeddings_input_dim=2816,
    )


def make(build):
    with torch.device("meta"):
        network = build()
    network = network.to(dtype).to_empty(device=device).eval()
    with torch.no_grad():
        for name, value in network.named_parameters():
            if value.dim() < 2:
                value.fill_(0.0 if name.endswith("bias") else 1.0)
            else:
                value.normal_(0.0, (value[0].numel()) ** -0.5)
        for value in network.buffers():
            value.zero_()
    return network.to(memory_format=torch.channels_last) if model != "flux" else network


def median(call, count):
    times = []
    for _ in range(count):
        start = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def measure(call, count):
    """The time of the call, and of its replay in a CUDA graph."""
    for _ in range(3):
        call()
    eager = median(call, count)
    if device != "cuda":
        return eager, None
    try:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            call()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
    except RuntimeError as error:
        print(f"diffusers cannot be captured: {error}", file=sys.stderr)
        return eager, None
    graph.replay()
    return eager, median(graph.replay, count)


def random(*shape):
    return torch.randn(shape, device=device, dtype=dtype)


@torch.inference_mode()
def main():
    side = size // 8
    if model == "flux":
        from diffusers import FluxTransformer2DModel

        network = make(lambda: FluxTransformer2DModel(guidance_embeds=True))
        patches = (side // 2) ** 2
        image_ids = torch.zeros(patches, 3, device=device, dtype=dtype)
        image_ids[:, 1] = torch.arange(patches, device=device) // (side // 2)
        image_ids[:, 2] = torch.arange(patches, device=device) % (side // 2)
        inputs = dict(
            hidden_states=random(1, patches, 64), encoder_hidden_states=random(1, 512, 4096), pooled_projections=random(1, 768),
            timestep=torch.full((1,), 0.5, device=device, dtype=dtype), guidance=torch.full((1,), 3.5, device=device, dtype=dtype),
            img_ids=image_ids, txt_ids=torch.zeros(512, 3, device=device, dtype=dtype),
        )
    else:
        network = make(unet)
        context = 768 if model == "sd15" else 2048
        inputs = dict(
            sample=random(2, 4, side, side).to(memory_format=torch.channels_last), timestep=torch.tensor(500, device=device),
            encoder_hidden_states=random(2, 77, context),
        )
        if model == "sdxl":
            inputs["added_cond_kwargs"] = dict(text_embeds=random(2, 1280), time_ids=torch.full((2, 6), float(size), device=device, dtype=dtype))
    step, step_graph = measure(lambda: network(**inputs, return_dict=False), steps)
    del network
    channels = 16 if model == "flux" else 4
    decoder = make(lambda: autoencoder(channels, model != "flux"))
    latents = random(1, channels, side, side)
    decode, decode_graph = measure(lambda: decoder.decode(latents, return_dict=False), 5)
    times = dict(step_ms=step, step_graph_ms=step_graph, decode_ms=decode, decode_graph_ms=decode_graph)
    print(json.dumps(times), flush=True)


main()
