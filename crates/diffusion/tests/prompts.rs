//! The conditioning of prompts against diffusers 0.35.2, transformers 4.57 and the published rules for weights.

mod support;

use support::reference::Reference;
use warpwave_diffusion::{PromptOptions, Weighting, encode_prompt};
use warpwave_tensor::Tensor;

fn check(found: &Tensor, expected: &Tensor, case: &str) {
    assert_eq!(found.shape(), expected.shape(), "{case}");
    let (found, expected) = (found.floats().unwrap(), expected.floats().unwrap());
    let gap = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(gap <= 2e-5, "{case}: {gap} apart");
}

#[test]
fn plain_prompts_are_those_of_diffusers() {
    for name in ["sd15", "sd21", "sdxl", "flux-schnell", "flux-dev"] {
        let reference = Reference::open(name);
        let options = reference.request().text;
        for (prompt, key) in [("prompt", ""), ("negative", "negative_")] {
            let text = reference.case[prompt].as_str().unwrap();
            let found = encode_prompt(&reference.model, text, &options).unwrap();
            check(&found.context, &reference.expected[&format!("text/{prompt}")], name);
            if let Some(pooled) = reference.expected.get(&format!("text/{key}pooled")) {
                check(&found.pooled.unwrap(), pooled, name);
            }
        }
    }
}

#[test]
fn weights_move_embeddings() {
    let reference = Reference::open("sd15");
    let encode = |weighting, text: &str| {
        encode_prompt(&reference.model, text, &PromptOptions { weighting, ..PromptOptions::default() }).unwrap().context
    };
    let prompt = "a photo of a (red fox:1.3) in the snow";
    check(&encode(Weighting::ComfyUi, prompt), &reference.expected["weighted/toward_empty"], "toward_empty");
    check(&encode(Weighting::A1111, prompt), &reference.expected["weighted/mean_kept"], "mean_kept");
    for weighting in [Weighting::ComfyUi, Weighting::A1111] {
        let plain = encode(weighting, "a photo of a (red fox:1) in the snow");
        check(&plain, &reference.expected["weighted/plain"], "plain");
    }
}

#[test]
fn long_prompts_are_encoded_in_chunks() {
    let reference = Reference::open("sd15");
    let found = encode_prompt(&reference.model, reference.case["prompts"][5].as_str().unwrap(), &PromptOptions::default()).unwrap();
    check(&found.context, &reference.expected["long/text"], "long");
    let encode = |text: &str| encode_prompt(&reference.model, text, &PromptOptions::default()).unwrap().context;
    let both = encode("a red fox BREAK in the snow");
    assert_eq!(both.shape(), [1, 154, 32]);
    check(&both.narrow(1, 0, 77).unwrap(), &encode("a red fox"), "before");
    check(&both.narrow(1, 77, 77).unwrap(), &encode("in the snow"), "after");
}

#[test]
fn layers_can_be_left_out() {
    let reference = Reference::open("sd15");
    let options = PromptOptions { clip_skip: 1, ..PromptOptions::default() };
    let found = encode_prompt(&reference.model, reference.case["prompt"].as_str().unwrap(), &options).unwrap();
    check(&found.context, &reference.expected["text/clip_skip_1"], "clip_skip_1");
    assert!(encode_prompt(&reference.model, "x", &PromptOptions { clip_skip: 1000, ..options }).is_err());
}
