//! The engine: batching does not change tokens, blocks never leak, requests are ordered, bounded and cancelled.

#[path = "../../tensor/tests/common/mod.rs"]
mod common;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use warpwave_kernels::{Penalties, Sampling};
use warpwave_llm::engine::{Constraint, Engine, EngineEvent, EngineOptions, EngineRequest, EventSink, Progress, Refusal, RequestHandle};
use warpwave_llm::{Checkpoint, FinishReason, LoadOptions, Logits, Model, Request, Runner, RunnerOptions, Sampler, Sequence};
use warpwave_tensor::{Device, Precision};
use warpwave_test_support::{Random, full_run, seed, workspace_root};

const FAMILIES: [&str; 8] = ["gemma2", "gemma3", "llama3", "llama_bias", "mistral", "phi3", "qwen2", "qwen3"];
const VOCAB: usize = 320;

fn runner(family: &str, device: &Device, options: RunnerOptions) -> Runner {
    let checkpoint = Checkpoint::open(workspace_root().join("crates/llm/tests/oracles").join(family)).unwrap();
    let load = LoadOptions { precision: Precision::Exact, ..LoadOptions::default() };
    Runner::new(Model::load(&checkpoint, device, load, &mut |_| ()).unwrap(), options).unwrap()
}

/// An engine on the CPU with a KV cache of `tokens`.
fn engine(tokens: usize, chunk: usize, options: EngineOptions) -> Engine {
    let runner_options = RunnerOptions { context: 192, cache_tokens: Some(tokens), chunk: Some(chunk), ..RunnerOptions::default() };
    Engine::new(runner("llama3", &Device::Cpu, runner_options), None, options)
}

/// Prompts that often begin as others do, with various sampling parameters.
fn random_request(random: &mut Random, beginnings: &[Vec<u32>], longest: usize) -> EngineRequest {
    let mut prompt = Vec::new();
    if random.below(3) > 0 {
        let beginning = random.pick(beginnings);
        prompt.extend_from_slice(&beginning[..1 + random.below(beginning.len())]);
    }
    let own = 1 + random.below(longest);
    prompt.extend((0..own).map(|_| random.below(VOCAB) as u32));
    let sampler = match random.below(3) {
        0 => Sampler::default(),
        _ => Sampler {
            sampling: Sampling {
                temperature: random.uniform(0.3, 1.5) as f32,
                top_k: random.below(2) * 40,
                top_p: random.uniform(0.7, 1.0) as f32,
                min_p: 0.02,
            },
            penalties: Penalties { repetition: 1.0 + 0.2 * random.below(2) as f32, presence: 0.1, frequency: 0.1 },
            seed: random.next_u64(),
            ..Sampler::default()
        },
    };
    let params = Request::default().max_tokens(1 + random.below(longest)).sampler(sampler);
    EngineRequest { priority: random.below(3) as i32 - 1, ..EngineRequest::new(prompt, params) }
}

fn copy_of(request: &EngineRequest) -> EngineRequest {
    EngineRequest { priority: request.priority, ..EngineRequest::new(request.prompt.clone(), request.params.clone()) }
}

/// The tokens that a runner generates alone.
fn alone(runner: &mut Runner, request: &EngineRequest) -> Vec<u32> {
    let mut sequence = Sequence::default();
    let generation = runner.generate(&mut sequence, &request.prompt, None, &request.params).unwrap();
    let completion = generation.run(|_| std::ops::ControlFlow::Continue(())).unwrap();
    completion.tokens.iter().map(|token| token.id).collect()
}

/// Requires the tokens that a request gets alone, up to a choice that rounding decides: batches of other sizes add in another order, so
/// that logits differ by about 1e-5, and of thousands of random choices some are that close. The found token must then be what is sampled
/// from the logits alone with such a difference.
fn assert_same(family: &str, device: &Device, request: &EngineRequest, found: &[u32], expected: &[u32], what: &str) {
    if found == expected {
        return;
    }
    let at = found.iter().zip(expected).position(|(a, b)| a != b).unwrap_or_else(|| panic!("{what}: {found:?} instead of {expected:?}"));
    let tokens = [&request.prompt[..], &expected[..at]].concat();
    let mut runner = runner(family, device, RunnerOptions { context: 192, ..RunnerOptions::default() });
    let logits = runner.forward(&mut [(&mut Sequence::default(), &tokens)], Logits::Last).unwrap().to_vec::<f32>().unwrap();
    let mut random = Random::new(1);
    let is_close = (0..2000).any(|_| {
        let mut logits: Vec<f32> = logits.iter().map(|x| x + random.uniform(-5e-5, 5e-5) as f32).collect();
        request.params.sampler.sample(&mut logits, &tokens, tokens.len() as u64, 0).unwrap().id == found[at]
    });
    assert!(is_close, "{what}: token {at} of {found:?} instead of {expected:?}");
    println!("{what}: rounding decided token {at}");
}

/// The tokens of a request that ended, and why.
fn tokens_of(handle: &RequestHandle) -> (Vec<u32>, FinishReason) {
    let mut tokens = Vec::new();
    while let Some(event) = handle.try_next() {
        match event {
            EngineEvent::Started { .. } => assert!(tokens.is_empty()),
            EngineEvent::Token { token, .. } => tokens.push(token.id),
            EngineEvent::Done { summary, .. } => {
                assert_eq!(summary.tokens, tokens.len());
                assert!(handle.try_next().is_none(), "nothing comes after the end");
                return (tokens, summary.reason);
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("the request did not end")
}

/// Runs until nothing is left; checks the blocks after each step.
fn finish(engine: &mut Engine) {
    for _ in 0..200_000 {
        if engine.step() == Progress::Idle {
            assert_eq!(engine.stats().free_blocks, engine.stats().blocks, "all blocks are free at the end");
            return;
        }
        engine.check_blocks().unwrap();
    }
    panic!("the engine does not come to an end: {:?}", engine.stats());
}

/// Submits requests at random steps and compares each with what the model generates alone.
fn compare(family: &str, device: &Device, random: &mut Random, batch: usize, longest: usize) -> (u64, u64) {
    let beginnings: Vec<Vec<u32>> = (0..3).map(|_| (0..longest + 20).map(|_| random.below(VOCAB) as u32).collect()).collect();
    let mut requests: Vec<EngineRequest> = (0..batch).map(|_| random_request(random, &beginnings, longest)).collect();
    // The same prompt twice: the second finds it in the cache, or waits for it.
    requests.push(copy_of(&requests[0]));
    let mut single = runner(family, device, RunnerOptions { context: 192, ..RunnerOptions::default() });
    let expected: Vec<Vec<u32>> = requests.iter().map(|request| alone(&mut single, request)).collect();
    drop(single);
    // Too few blocks for all: preemption.
    let cache_tokens = Some((batch * longest / 4).clamp(longest * 3 + 32, 480));
    let chunk = Some(8 + random.below(80));
    let runner = runner(family, device, RunnerOptions { context: 192, cache_tokens, chunk, ..RunnerOptions::default() });
    let options = EngineOptions { prompt_tokens: 4 + random.below(40), ..EngineOptions::default() };
    let mut engine = Engine::new(runner, None, options);
    let mut queue: VecDeque<(usize, EngineRequest)> = requests.iter().map(copy_of).enumerate().collect();
    let mut handles = Vec::new();
    while !queue.is_empty() {
        for _ in 0..random.below(1 + batch / 4).min(queue.len()) + 1 {
            let Some((number, request)) = queue.pop_front() else { break };
            handles.push((number, engine.submit(request).unwrap()));
        }
        for _ in 0..random.below(4) {
            engine.step();
            engine.check_blocks().unwrap();
        }
    }
    finish(&mut engine);
    for (number, handle) in handles {
        let (tokens, _) = tokens_of(&handle);
        let what = format!("{family} on {device}, {batch} requests, number {number}");
        assert_same(family, device, &requests[number], &tokens, &expected[number], &what);
    }
    (engine.stats().preemptions, engine.stats().prefix_hits)
}

#[test]
fn batching_gives_the_tokens_that_each_request_gets_alone() {
    let mut random = Random::new(seed());
    let (mut preemptions, mut hits) = (0, 0);
    let sizes: &[usize] = if full_run() { &[2, 3, 7, 16, 33, 64] } else { &[2, 64] };
    for family in FAMILIES {
        for batch in sizes.iter().copied().chain([4 + random.below(28)]) {
            let (preempted, hit) = compare(family, &Device::Cpu, &mut random, batch, 40);
            (preemptions, hits) = (preemptions + preempted, hits + hit);
        }
    }
    println!("{preemptions} preemptions, {hits} tokens from the prefix cache");
    assert!(preemptions > 0 && hits > 0);
}

#[test]
fn batching_gives_the_same_tokens_on_gpus() {
    let mut random = Random::new(seed());
    for device in common::devices().into_iter().filter(|device| !device.is_cpu()) {
        let (batch, longest) = if device.is_virtual() && !full_run() { (3, 6) } else { (24, 40) };
        let families = if device.is_virtual() && !full_run() { &["llama3"][..] } else { &["llama3", "qwen3", "gemma2"] };
        for family in families {
            compare(family, &device, &mut random, batch, longest);
        }
    }
}

/// The same request alone, among 63 others, with a cold and a warm cache, in large and small chunks: the same tokens, greedy and sampled.
#[test]
fn a_request_gives_the_same_tokens_in_every_company() {
    let mut random = Random::new(seed());
    for family in if full_run() { &FAMILIES[..] } else { &["llama3", "qwen3"] } {
        let prompt: Vec<u32> = (0..90).map(|_| random.below(VOCAB) as u32).collect();
        for temperature in [0.0, 1.0] {
            let params = Request::default().max_tokens(40).ignore_eos(true).temperature(temperature).seed(random.next_u64());
            let request = || EngineRequest::new(prompt.clone(), params.clone());
            let expected = alone(&mut runner(family, &Device::Cpu, RunnerOptions { context: 192, ..RunnerOptions::default() }), &request());
            for (chunk, others) in [(192, 0), (16, 0), (192, 63), (48, 63)] {
                let options = RunnerOptions { context: 192, cache_tokens: Some(6400), chunk: Some(chunk), ..RunnerOptions::default() };
                let mut engine = Engine::new(runner(family, &Device::Cpu, options), None, EngineOptions::default());
                for warm in [false, true] {
                    let beginnings = vec![prompt.clone(), prompt[20..].to_vec()];
                    let others: Vec<_> =
                        (0..others).map(|_| engine.submit(random_request(&mut random, &beginnings, 20)).unwrap()).collect();
                    let handle = engine.submit(request()).unwrap();
                    finish(&mut engine);
                    let found = tokens_of(&handle).0;
                    let what = format!("{family}, temperature {temperature}, chunk {chunk}, {} others, warm {warm}", others.len());
                    assert_same(family, &Device::Cpu, &request(), &found, &expected, &what);
                }
                assert!(engine.stats().prefix_hits >= 80, "the second time the prompt was in the cache");
            }
        }
    }
}

/// Speculation changes no token of any kind of request, and saves steps where texts repeat.
#[test]
fn speculation_leaves_the_tokens_unchanged() {
    let mut random = Random::new(seed());
    let families = if full_run() { &FAMILIES[..] } else { &["llama3", "gemma3"] };
    for family in families {
        let phrase: Vec<u32> = (0..12).map(|_| random.below(VOCAB) as u32).collect();
        let beginnings = vec![phrase.repeat(4), (0..40).map(|_| random.below(VOCAB) as u32).collect()];
        let requests: Vec<EngineRequest> = (0..24).map(|_| random_request(&mut random, &beginnings, 40)).collect();
        let mut single = runner(family, &Device::Cpu, RunnerOptions { context: 192, ..RunnerOptions::default() });
        let expected: Vec<Vec<u32>> = requests.iter().map(|request| alone(&mut single, request)).collect();
        for draft in [1, 4, 6] {
            // Few blocks: drafts are cut, requests preempted.
            let runner_options = RunnerOptions { context: 192, cache_tokens: Some(320), chunk: Some(96), ..RunnerOptions::default() };
            let options = EngineOptions { speculative: draft, max_running: 5, ..EngineOptions::default() };
            let mut engine = Engine::new(runner(family, &Device::Cpu, runner_options), None, options);
            let handles: Vec<RequestHandle> = requests.iter().map(|request| engine.submit(copy_of(request)).unwrap()).collect();
            finish(&mut engine);
            for (number, (handle, expected)) in handles.iter().zip(&expected).enumerate() {
                let what = format!("{family}, {draft} drafted, number {number}");
                assert_same(family, &Device::Cpu, &requests[number], &tokens_of(handle).0, expected, &what);
            }
            // Random answers need not repeat anything: those below do.
            let stats = engine.stats();
            assert!(stats.accepted_tokens <= stats.drafted_tokens, "{stats:?}");
        }
    }
    // A greedy answer of a small model repeats itself soon.
    let steps = |speculative: usize| {
        let mut engine = engine(512, 64, EngineOptions { speculative, ..EngineOptions::default() });
        let request = EngineRequest::new(vec![7; 12], Request::default().max_tokens(150).ignore_eos(true));
        let handle = engine.submit(request).unwrap();
        finish(&mut engine);
        (tokens_of(&handle).0, engine.stats())
    };
    let ((plain, without), (same, with)) = (steps(0), steps(4));
    println!("{} steps without, {} with, {} of {} accepted", without.steps, with.steps, with.accepted_tokens, with.drafted_tokens);
    assert!(plain == same && without.drafted_tokens == 0);
    assert_eq!(with.generated_tokens, 150);
    assert!(with.accepted_tokens > 0 && with.steps + with.accepted_tokens == without.steps, "each accepted token saves a step");
}

/// Constraints, stop tokens and minimum lengths hold at each drafted place.
#[test]
fn speculation_keeps_constraints() {
    let run = |speculative: usize, request: EngineRequest| {
        let mut engine = engine(256, 64, EngineOptions { speculative, ..EngineOptions::default() });
        let handle = engine.submit(request).unwrap();
        finish(&mut engine);
        tokens_of(&handle)
    };
    let params = Request::default().max_tokens(40).ignore_eos(true);
    let request = || EngineRequest::new([3, 6, 9, 12].repeat(5), params.clone());
    let plain = run(0, request()).0;
    assert_eq!(run(4, request()).0, plain);
    for stop in [plain[5], plain[39]] {
        let stopping = || EngineRequest { stop_tokens: vec![stop], min_tokens: 8, ..request() };
        assert_eq!(run(4, stopping()), run(0, stopping()));
    }
    let guided = || EngineRequest { constraint: Some(Box::new(Thirds(0))), ..request() };
    assert_eq!(run(4, guided()), run(0, guided()));
}

/// A warm prompt gives the tokens of a cold one; salts and `reuse` separate.
#[test]
fn cached_prompts_give_the_same_tokens_and_are_counted() {
    let mut engine = engine(512, 64, EngineOptions::default());
    let prompt: Vec<u32> = (0..70).map(|token| token * 3 % 300).collect();
    let request = || EngineRequest::new(prompt.clone(), Request::default().max_tokens(20));
    let mut run = |request: EngineRequest| {
        let handle = engine.submit(request).unwrap();
        finish(&mut engine);
        let EngineEvent::Started { cached, .. } = handle.try_next().unwrap() else { panic!("not started") };
        (cached, tokens_of(&handle).0)
    };
    let (cold, first) = run(request());
    let (warm, second) = run(request());
    assert_eq!((cold, warm, &first), (0, 64, &second));
    assert_eq!(run(EngineRequest { salt: "other".to_owned(), ..request() }), (0, first.clone()));
    assert_eq!(run(EngineRequest { reuse: false, ..request() }), (0, first.clone()));
    // The next turn of a conversation: generated tokens are shared too. 89 of 90 tokens were computed.
    let turn = [&prompt[..], &first, &[5, 6]].concat();
    assert_eq!(run(EngineRequest::new(turn, Request::default().max_tokens(1))).0, 80);
    // A prompt of whole blocks: the last token is computed for its logits.
    assert_eq!(run(EngineRequest::new(prompt[..64].to_vec(), Request::default().max_tokens(1))).0, 48);
    engine.clear_prefix_cache();
    let handle = engine.submit(request()).unwrap();
    finish(&mut engine);
    assert!(matches!(handle.try_next(), Some(EngineEvent::Started { cached: 0, .. })));
}

/// Requests with the same prompt at the same time compute it once.
#[test]
fn equal_prompts_at_once_are_computed_once() {
    let mut engine = engine(1024, 64, EngineOptions::default());
    let prompt: Vec<u32> = (0..100).collect();
    let handles: Vec<_> =
        (0..4).map(|_| engine.submit(EngineRequest::new(prompt.clone(), Request::default().max_tokens(4))).unwrap()).collect();
    finish(&mut engine);
    let answers: Vec<_> = handles.iter().map(tokens_of).collect();
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    assert_eq!(engine.stats().prefix_hits, 3 * 96);
}

/// Thousands of requests, submitted and cancelled at random.
#[test]
fn cancelled_requests_leak_no_block() {
    let mut random = Random::new(seed());
    let beginnings: Vec<Vec<u32>> = (0..4).map(|_| (0..60).map(|_| random.below(VOCAB) as u32).collect()).collect();
    let options = EngineOptions { max_running: 12, max_waiting: 40, prompt_tokens: 24, ..EngineOptions::default() };
    let mut engine = engine(400, 48, options);
    let mut handles: Vec<RequestHandle> = Vec::new();
    let (mut refused, mut submitted) = (0, 0);
    let all = if full_run() { 10_000 } else { 3_000 };
    while submitted < all {
        for _ in 0..random.below(6) {
            match engine.submit(random_request(&mut random, &beginnings, 30)) {
                Ok(handle) => handles.push(handle),
                Err(Refusal::QueueFull { waiting, .. }) => {
                    assert!(waiting >= 40);
                    refused += 1;
                }
                Err(other) => panic!("{other}"),
            }
            submitted += 1;
        }
        for _ in 0..random.below(5) {
            if !handles.is_empty() {
                drop(handles.swap_remove(random.below(handles.len())));
            }
        }
        let held = handles.len();
        engine.step();
        engine.check_blocks().unwrap();
        let stats = engine.stats();
        assert!(stats.running <= 12 && stats.running + stats.waiting <= held, "cancelled requests are gone after one step: {stats:?}");
        handles.retain(|handle| {
            let mut ended = false;
            while let Some(event) = handle.try_next() {
                ended = matches!(event, EngineEvent::Done { .. });
                assert!(!matches!(event, EngineEvent::Failed { .. }));
            }
            !ended
        });
    }
    println!("{submitted} submitted, {refused} refused, {:?}", engine.stats());
    assert!(engine.stats().preemptions > 0 && refused > 0);
    drop(handles);
    finish(&mut engine);
    assert!(engine.submit(random_request(&mut random, &beginnings, 30)).is_ok(), "the queue is empty again");
}

/// Order is arrival moved by priority; a smaller number runs earlier.
#[test]
fn priority_moves_requests_forward_and_nobody_starves() {
    let options = EngineOptions { max_running: 1, ..EngineOptions::default() };
    let mut engine = engine(256, 32, options);
    let request =
        |priority| EngineRequest { priority, ..EngineRequest::new(vec![1, 2, 3], Request::default().max_tokens(3).ignore_eos(true)) };
    let handles: Vec<_> = [0, 5, -5, 0].into_iter().map(|priority| engine.submit(request(priority)).unwrap()).collect();
    let mut ended = Vec::new();
    while engine.step() != Progress::Idle {
        for (number, handle) in handles.iter().enumerate() {
            while let Some(event) = handle.try_next() {
                if matches!(event, EngineEvent::Done { .. }) {
                    ended.push(number);
                }
            }
        }
    }
    assert_eq!(ended, [2, 0, 3, 1]);
    // A stream of preferred requests does not hold up one that waited long enough.
    let patient = engine.submit(request(1)).unwrap();
    let mut steps = 0;
    let mut preferred = Vec::new();
    while patient.try_next().is_none() {
        if preferred.len() < 8 {
            preferred.push(engine.submit(request(0)).unwrap());
        }
        preferred.retain(|handle: &RequestHandle| !matches!(handle.try_next(), Some(EngineEvent::Done { .. })));
        engine.step();
        steps += 1;
        assert!(steps < 2000, "starved");
    }
    assert!(steps > 500, "priority had no effect");
}

#[test]
fn prompts_advance_in_chunks_beside_decoding() {
    let options = EngineOptions { prompt_tokens: 8, ..EngineOptions::default() };
    let mut engine = engine(512, 64, options);
    let decoding = engine.submit(EngineRequest::new(vec![1; 4], Request::default().max_tokens(60).ignore_eos(true))).unwrap();
    engine.step();
    let prompt = engine.submit(EngineRequest::new(vec![2; 80], Request::default().max_tokens(1))).unwrap();
    let mut steps = 0;
    loop {
        let before = engine.stats().generated_tokens;
        engine.step();
        steps += 1;
        assert!(engine.stats().generated_tokens > before, "decoding goes on in each step");
        assert!(engine.stats().last_step_tokens <= 9);
        let events: Vec<_> = std::iter::from_fn(|| prompt.try_next()).collect();
        if events.iter().any(|event| matches!(event, EngineEvent::Token { .. })) {
            break;
        }
    }
    assert_eq!(steps, 10, "80 tokens in chunks of 8");
    drop(decoding);
    // Alone, a prompt takes whole steps.
    let _prompt = engine.submit(EngineRequest::new(vec![3; 100], Request::default().max_tokens(1))).unwrap();
    engine.step();
    assert_eq!(engine.stats().last_step_tokens, 64);
}

#[test]
fn a_cache_that_is_too_small_for_an_answer_ends_it() {
    let mut engine = engine(48, 64, EngineOptions::default());
    let handle = engine.submit(EngineRequest::new(vec![7; 20], Request::default().max_tokens(100).ignore_eos(true))).unwrap();
    finish(&mut engine);
    let (tokens, reason) = tokens_of(&handle);
    // The last token is sampled without a place in the cache.
    assert_eq!((tokens.len(), reason), (29, FinishReason::Context));
}

#[test]
fn invalid_requests_are_refused_with_the_reason() {
    let mut engine = engine(64, 32, EngineOptions { max_waiting: 2, ..EngineOptions::default() });
    let params = Request::default();
    let mut refusal = |prompt: Vec<u32>, params: Request| engine.submit(EngineRequest::new(prompt, params)).unwrap_err().to_string();
    assert!(refusal(vec![], params.clone()).contains("no tokens"));
    assert!(refusal(vec![1, 320], params.clone()).contains("token id 320 is out of range"));
    assert!(refusal(vec![1; 192], params.clone()).contains("the prompt fills the context"));
    assert!(refusal(vec![1; 65], params.clone()).contains("the KV cache is full"));
    assert!(refusal(vec![1], params.clone().temperature(-1.0)).contains("temperature"));
    let _held: Vec<_> = (0..2).map(|_| engine.submit(EngineRequest::new(vec![1], params.clone())).unwrap()).collect();
    let full = engine.submit(EngineRequest::new(vec![1], params.clone())).unwrap_err();
    assert_eq!(full, Refusal::QueueFull { waiting: 2, tokens: 2 });
    engine.step();
    assert!(engine.submit(EngineRequest::new(vec![1], params)).is_ok(), "running requests do not count");
}

/// Allows multiples of three, and ends after four tokens.
struct Thirds(usize);

impl Constraint for Thirds {
    fn mask(&mut self, logits: &mut [f32]) -> Result<(), String> {
        logits.iter_mut().enumerate().filter(|(token, _)| token % 3 != 0).for_each(|(_, logit)| *logit = f32::NEG_INFINITY);
        Ok(())
    }

    fn accept(&mut self, token: u32) -> Result<bool, String> {
        self.0 += 1;
        if token.is_multiple_of(3) { Ok(self.0 == 4) } else { Err("not a multiple".to_owned()) }
    }
}

#[test]
fn constraints_minimum_length_and_stop_tokens_hold() {
    let mut engine = engine(256, 64, EngineOptions::default());
    let params = Request::default().max_tokens(30).ignore_eos(true).temperature(1.0).seed(4);
    let request = || EngineRequest::new(vec![9; 5], params.clone());
    let mut run = |request: EngineRequest| {
        let handle = engine.submit(request).unwrap();
        finish(&mut engine);
        tokens_of(&handle)
    };
    let (thirds, reason) = run(EngineRequest { constraint: Some(Box::new(Thirds(0))), ..request() });
    assert_eq!((thirds.len(), reason), (4, FinishReason::Eos));
    assert!(thirds.iter().all(|token| token % 3 == 0));
    let (free, _) = run(request());
    let stop = free[6];
    let first = free.iter().position(|token| *token == stop).unwrap();
    let (stopped, reason) = run(EngineRequest { stop_tokens: vec![stop], ..request() });
    assert_eq!((&stopped[..], reason), (&free[..first], FinishReason::Stop));
    let (longer, _) = run(EngineRequest { stop_tokens: vec![stop], min_tokens: 12, ..request() });
    assert!(longer.len() >= 12 && !longer[..12].contains(&stop));
    let (none, reason) = run(EngineRequest::new(vec![1], Request::default().max_tokens(0)));
    assert_eq!((none.len(), reason), (0, FinishReason::Length));
}

/// A sink that can be full.
struct Slow {
    full: Arc<AtomicBool>,
    events: std::sync::mpsc::Sender<EngineEvent>,
}

impl EventSink for Slow {
    fn send(&mut self, event: EngineEvent) {
        let _ = self.events.send(event);
    }

    fn is_closed(&self) -> bool {
        false
    }

    fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }
}

#[test]
fn a_reader_that_is_behind_pauses_only_its_own_request() {
    let mut engine = engine(256, 64, EngineOptions::default());
    let params = Request::default().max_tokens(10).ignore_eos(true);
    let full = Arc::new(AtomicBool::new(false));
    let (events, received) = std::sync::mpsc::channel();
    engine.submit_to(EngineRequest::new(vec![1; 5], params.clone()), Box::new(Slow { full: full.clone(), events })).unwrap();
    engine.step();
    full.store(true, Ordering::Relaxed);
    let other = engine.submit(EngineRequest::new(vec![2; 5], params)).unwrap();
    while engine.step() != Progress::Paused {}
    assert_eq!(tokens_of(&other).0.len(), 10);
    assert_eq!(received.try_iter().count(), 2, "started, and the first token");
    full.store(false, Ordering::Relaxed);
    finish(&mut engine);
    assert_eq!(received.try_iter().count(), 10, "nine tokens and the end");
}

#[test]
fn an_engine_thread_serves_clients_of_other_threads() {
    let mut random = Random::new(seed());
    let beginnings: Vec<Vec<u32>> = vec![(0..40).collect()];
    let requests: Vec<EngineRequest> = (0..16).map(|_| random_request(&mut random, &beginnings, 20)).collect();
    let mut single = runner("llama3", &Device::Cpu, RunnerOptions { context: 192, ..RunnerOptions::default() });
    let expected: Vec<_> = requests.iter().map(|request| alone(&mut single, request)).collect();
    let thread = engine(512, 64, EngineOptions::default()).spawn(1).unwrap();
    let workers: Vec<_> = requests
        .into_iter()
        .map(|request| {
            let client = thread.client();
            std::thread::spawn(move || {
                let handle = client.submit(request).unwrap();
                let mut tokens = Vec::new();
                while let Some(event) = handle.next_event() {
                    if let EngineEvent::Token { token, .. } = event {
                        tokens.push(token.id);
                    }
                }
                tokens
            })
        })
        .collect();
    for (worker, expected) in workers.into_iter().zip(expected) {
        assert_eq!(worker.join().unwrap(), expected);
    }
    let client = thread.client();
    let cancelled = client.submit(EngineRequest::new(vec![1], Request::default().max_tokens(180).ignore_eos(true))).unwrap();
    assert!(matches!(cancelled.next_event(), Some(EngineEvent::Started { .. })));
    drop(cancelled);
    for _ in 0..500 {
        if client.stats().running == 0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    assert_eq!((client.stats().running, client.stats().free_blocks), (0, 32));
    assert!(thread.is_alive());
    drop(thread);
    assert_eq!(client.submit(EngineRequest::new(vec![1], Request::default())).unwrap_err(), Refusal::Stopped);
}
