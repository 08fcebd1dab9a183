//! `cargo xtask book`: builds the pages of `docs/` with mdBook.

use std::path::PathBuf;
use std::process::Command;

use crate::run::{self, Result, Workspace, cargo, say};

/// The version that is installed if mdBook is missing.
const VERSION: &str = "0.5.4";

/// Runs the command.
pub fn main() -> Result<()> {
    build(&Workspace::find()?)
}

/// Builds the book into `target/book`.
pub fn build(workspace: &Workspace) -> Result<()> {
    let program = mdbook(workspace)?;
    say("building the book");
    run::checked(Command::new(program).current_dir(&workspace.root).args(["build", "docs"]))?;
    println!("{}", workspace.target.join("book/index.html").display());
    Ok(())
}

/// mdBook: the one on `PATH`, or our own below `target/`.
fn mdbook(workspace: &Workspace) -> Result<PathBuf> {
    if run::quiet(Command::new("mdbook").arg("--version")).is_some() {
        return Ok("mdbook".into());
    }
    let root = workspace.target.join("tools/mdbook");
    let program = root.join("bin/mdbook");
    if !program.is_file() {
        say(format!("installing mdBook {VERSION} below target/ (a few minutes)"));
        let mut install = cargo();
        // Its server and its search are not needed to build pages.
        install.args(["install", "mdbook", "--version", VERSION, "--locked", "--no-default-features", "--root"]).arg(&root);
        run::checked(install.env_remove("CARGO_TARGET_DIR"))?;
    }
    Ok(program)
}
