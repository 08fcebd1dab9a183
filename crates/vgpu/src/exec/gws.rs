//! Global wave sync (GWS): the barrier between the workgroups of a cooperative launch.

use std::sync::{Mutex, PoisonError};

use super::decoded::Step;
use super::wave::Wave;
use super::{Env, Outcome};

/// The barrier of a launch. Hardware has several; the device library uses one.
#[derive(Default)]
pub struct Gws {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    arrived: u64,
    /// How often the barrier opened.
    opened: u64,
}

impl Gws {
    /// Returns whether a wavefront passes the barrier of `waves` wavefronts. `ticket` is 0 on arrival, then which opening it waits for.
    fn pass(&self, ticket: &mut u64, waves: u64) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if *ticket == 0 {
            state.arrived += 1;
            if state.arrived < waves {
                *ticket = state.opened + 1;
                return false;
            }
            state.arrived = 0;
            state.opened += 1;
            return true;
        }
        let open = state.opened >= *ticket;
        if open {
            *ticket = 0;
        }
        open
    }
}

pub fn barrier(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    if w.exec == 0 {
        return Outcome::Continue;
    }
    if !e.dispatch.cooperative {
        let why = "ds_gws_barrier needs a cooperative launch; in a normal launch, not all workgroups are guaranteed to be resident";
        return e.illegal(w, s, why.to_owned());
    }
    let lane = w.exec.trailing_zeros() as usize;
    let waves = u64::from(w.vgpr(s.inst.src[0]).0[lane]) + 1;
    let mut ticket = w.gws_ticket;
    let open = e.dispatch.gws.pass(&mut ticket, waves);
    w.gws_ticket = ticket;
    if open {
        return Outcome::Continue;
    }
    // Execute the instruction again in the next time slice.
    w.pc -= usize::from(s.inst.words);
    Outcome::Yield
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_barrier_opens_for_all_when_the_last_one_comes_and_then_anew() {
        let gws = Gws::default();
        let mut tickets = [0; 3];
        for _ in 0..3 {
            assert!(!gws.pass(&mut tickets[0], 3) && !gws.pass(&mut tickets[1], 3));
            assert!(!gws.pass(&mut tickets[0], 3));
            assert!(gws.pass(&mut tickets[2], 3));
            assert!(gws.pass(&mut tickets[0], 3));
            // A wavefront that arrives again before the others left.
            let mut early = 0;
            assert!(!gws.pass(&mut early, 2));
            assert!(gws.pass(&mut tickets[1], 3));
            assert!(gws.pass(&mut 0, 2) && gws.pass(&mut early, 2));
        }
    }
}
