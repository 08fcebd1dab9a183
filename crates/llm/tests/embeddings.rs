//! Embeddings of an engine: the hidden states are those that the logits come from, and do not depend on the batch.

use warpwave_llm::engine::{Engine, EngineEvent, EngineOptions, EngineRequest, Pooling, Progress, RequestHandle};
use warpwave_llm::{Checkpoint, LoadOptions, Logits, Model, Request, Runner, RunnerOptions, Sequence};
use warpwave_tensor::{Device, Precision};
use warpwave_test_support::{Random, seed, workspace_root};

const VOCAB: usize = 320;
const HIDDEN: usize = 64;

fn checkpoint() -> Checkpoint {
    Checkpoint::open(workspace_root().join("crates/llm/tests/oracles/llama3")).unwrap()
}

fn runner(cache_tokens: usize, chunk: usize) -> Runner {
    let load = LoadOptions { precision: Precision::Exact, ..LoadOptions::default() };
    let options = RunnerOptions { context: 192, cache_tokens: Some(cache_tokens), chunk: Some(chunk), ..RunnerOptions::default() };
    Runner::new(Model::load(&checkpoint(), &Device::Cpu, load, &mut |_| ()).unwrap(), options).unwrap()
}

fn finish(engine: &mut Engine) {
    while engine.step() != Progress::Idle {
        engine.check_blocks().unwrap();
    }
    assert_eq!(engine.stats().free_blocks, engine.stats().blocks);
}

fn vector_of(handle: &RequestHandle) -> Vec<f32> {
    let events: Vec<EngineEvent> = std::iter::from_fn(|| handle.try_next()).collect();
    match events.as_slice() {
        [EngineEvent::Started { .. }, EngineEvent::Embedding { vector }, EngineEvent::Done { text, summary }] => {
            assert!(text.is_empty() && summary.tokens == 0 && summary.prompt_tokens > 0);
            vector.clone()
        }
        other => panic!("{other:?}"),
    }
}

fn prompt(random: &mut Random, tokens: usize) -> Vec<u32> {
    (0..tokens).map(|_| random.below(VOCAB) as u32).collect()
}

/// Through the output matrix, an embedding gives the direction of the logits: of the last token, or of their mean.
#[test]
fn embeddings_are_the_states_that_logits_come_from() {
    let mut random = Random::new(seed());
    let output = checkpoint().get_f32("output.weight").unwrap();
    for tokens in [1, 15, 16, 17, 100] {
        let prompt = prompt(&mut random, tokens);
        let mut sequence = Sequence::default();
        let logits = runner(192, 192).forward(&mut [(&mut sequence, &prompt)], Logits::All).unwrap().to_vec::<f32>().unwrap();
        for pooling in [Pooling::Mean, Pooling::Last] {
            let mut engine = Engine::new(runner(192, 192), None, EngineOptions::default());
            let handle = engine.submit(EngineRequest::embedding(prompt.clone(), pooling)).unwrap();
            finish(&mut engine);
            let vector = vector_of(&handle);
            assert!(vector.len() == HIDDEN && (vector.iter().map(|x| x * x).sum::<f32>() - 1.0).abs() < 1e-5);
            let rows = if pooling == Pooling::Mean { &logits[..] } else { &logits[(tokens - 1) * VOCAB..] };
            let expected: Vec<f32> = (0..VOCAB).map(|token| rows.chunks(VOCAB).map(|row| row[token]).sum()).collect();
            let found: Vec<f32> = output.chunks(HIDDEN).map(|row| row.iter().zip(&vector).map(|(a, b)| a * b).sum()).collect();
            let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
            let cosine = dot(&expected, &found) / (dot(&expected, &expected) * dot(&found, &found)).sqrt();
            assert!(cosine > 1.0 - 1e-6, "{pooling:?} of {tokens} tokens: {cosine}");
        }
    }
}

/// Chunks, neighbors that generate, a full cache and cached prompts change nothing.
#[test]
fn embeddings_do_not_depend_on_the_batch() {
    let mut random = Random::new(seed());
    let beginning = prompt(&mut random, 40);
    let prompts: Vec<Vec<u32>> = (1..30).map(|own| [&beginning[..own % 3 * 20], &prompt(&mut random, own * 3)].concat()).collect();
    let options = EngineOptions { prompt_tokens: 24, max_running: 8, ..EngineOptions::default() };
    let mut engine = Engine::new(runner(240, 48), None, options);
    let mut handles = Vec::new();
    let mut others = Vec::new();
    for (number, prompt) in prompts.iter().enumerate() {
        let pooling = [Pooling::Mean, Pooling::Last][number % 2];
        handles.push(engine.submit(EngineRequest::embedding(prompt.clone(), pooling)).unwrap());
        others.push(engine.submit(EngineRequest::new(prompt.clone(), Request::default().max_tokens(20).ignore_eos(true))).unwrap());
        for _ in 0..random.below(3) {
            engine.step();
        }
    }
    finish(&mut engine);
    assert!(engine.stats().preemptions > 0 && engine.stats().prefix_hits > 0, "{:?}", engine.stats());
    for (number, (prompt, handle)) in prompts.into_iter().zip(handles).enumerate() {
        let mut alone = Engine::new(runner(192, 192), None, EngineOptions::default());
        let single = alone.submit(EngineRequest::embedding(prompt, [Pooling::Mean, Pooling::Last][number % 2])).unwrap();
        finish(&mut alone);
        let (found, expected) = (vector_of(&handle), vector_of(&single));
        let worst = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 1e-5, "number {number}: {worst}");
    }
}

/// A text may fill the context; a longer one is refused.
#[test]
fn embeddings_take_the_whole_context() {
    let mut engine = Engine::new(runner(192, 64), None, EngineOptions::default());
    let handle = engine.submit(EngineRequest::embedding(vec![5; 192], Pooling::Last)).unwrap();
    finish(&mut engine);
    assert_eq!(vector_of(&handle).len(), HIDDEN);
    let refused = engine.submit(EngineRequest::embedding(vec![5; 193], Pooling::Last)).unwrap_err();
    assert!(refused.to_string().contains("more than the context of 192"), "{refused}");
}
