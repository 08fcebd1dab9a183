//! Graphs: captured work that is launched as one item of a stream.

use std::ffi::{c_char, c_int};
use std::sync::{Arc, Mutex};

use super::error::{HipError, Status};
use super::runtime::{lock, runtime};
use super::stream;
use super::types::{Handle, Out};
use super::work::Operation;

/// An operation and the nodes it depends on. Nodes are in a topological order.
#[derive(Clone)]
pub(super) struct Node {
    pub after: Vec<usize>,
    pub op: Operation,
}

/// A graph.
pub(super) struct Graph {
    pub nodes: Mutex<Arc<Vec<Node>>>,
}

/// An instantiated graph. Queued launches keep the nodes they were queued with.
pub(super) struct GraphExec {
    nodes: Mutex<Arc<Vec<Node>>>,
}

/// `hipGraphExecUpdateResult`.
const SUCCESS: c_int = 0;
const TOPOLOGY_CHANGED: c_int = 2;
const TYPE_CHANGED: c_int = 3;

pub(super) fn create(out: Out<Handle>, flags: u32) -> Status {
    if flags != 0 {
        return Err(HipError::INVALID_VALUE);
    }
    out.put(runtime()?.graphs.add(Arc::new(Graph { nodes: Mutex::default() })))
}

pub(super) fn instantiate_with_flags(out: Out<Handle>, graph: Handle, _flags: u64) -> Status {
    let runtime = runtime()?;
    if out.is_null() {
        return Err(HipError::INVALID_VALUE);
    }
    let nodes = lock(&runtime.graphs.get(graph)?.nodes).clone();
    out.put(runtime.execs.add(Arc::new(GraphExec { nodes: Mutex::new(nodes) })))
}

pub(super) fn instantiate(out: Out<Handle>, graph: Handle, node: Out<Handle>, _log: Out<c_char>, _log_size: usize) -> Status {
    node.put_if_non_null(std::ptr::null_mut());
    instantiate_with_flags(out, graph, 0)
}

pub(super) fn launch(exec: Handle, stream: Handle) -> Status {
    let nodes = lock(&runtime()?.execs.get(exec)?.nodes).clone();
    stream::of(stream)?.submit(Operation::Graph(nodes))
}

pub(super) fn upload(exec: Handle, stream: Handle) -> Status {
    runtime()?.execs.get(exec)?;
    stream::of(stream).map(drop)
}

/// Replaces the operations by those of a graph of the same topology.
pub(super) fn update(exec: Handle, graph: Handle, node: Out<Handle>, result: Out<c_int>) -> Status {
    let runtime = runtime()?;
    let (exec, graph) = (runtime.execs.get(exec)?, runtime.graphs.get(graph)?);
    let new = lock(&graph.nodes).clone();
    let mut old = lock(&exec.nodes);
    let same_shape = old.len() == new.len() && old.iter().zip(new.iter()).all(|(a, b)| a.after == b.after);
    let same_kinds = same_shape && old.iter().zip(new.iter()).all(|(a, b)| a.op.kind() == b.op.kind());
    node.put_if_non_null(std::ptr::null_mut());
    result.put_if_non_null(match (same_shape, same_kinds) {
        (false, _) => TOPOLOGY_CHANGED,
        (true, false) => TYPE_CHANGED,
        (true, true) => SUCCESS,
    });
    if !same_kinds {
        return Err(HipError::GRAPH_UPDATE_FAILED);
    }
    *old = new;
    Ok(())
}

pub(super) fn destroy(graph: Handle) -> Status {
    runtime()?.graphs.remove(graph).map(drop)
}

pub(super) fn exec_destroy(exec: Handle) -> Status {
    runtime()?.execs.remove(exec).map(drop)
}
