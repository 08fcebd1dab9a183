//! Texts that several programs begin with.

pub(crate) const TYPES: &str = include_str!("cu/types.cuh");
pub(crate) const MATH: &str = include_str!("cu/math.cuh");
pub(crate) const PACK: &str = include_str!("cu/pack.cuh");
pub(crate) const HEADS: &str = include_str!("cu/heads.cuh");
pub(crate) const EARLY: &str = include_str!("cu/early.cuh");
pub(crate) const TILE: &str = include_str!("cu/tile.cuh");
pub(crate) const TEAM: &str = include_str!("cu/team.cuh");
/// With what it needs.
pub(crate) const MAP: &str = concat!(include_str!("cu/early.cuh"), include_str!("cu/map.cuh"));
