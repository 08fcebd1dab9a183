//! The chat page at `/` and the image page at `/images`: files that are part of the program.
//!
//! Its policy allows nothing but these files, this server's API and images made by the page (`blob:`): no inline code, no other host. What a model
//! writes becomes text nodes.

use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::app::App;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

/// Path, type and content of each file.
const FILES: [(&str, &str, &str); 12] = [
    ("/", "text/html; charset=utf-8", include_str!("index.html")),
    ("/page/style.css", "text/css; charset=utf-8", include_str!("style.css")),
    ("/page/icon.svg", "image/svg+xml", include_str!("icon.svg")),
    ("/page/app.js", "text/javascript; charset=utf-8", include_str!("app.js")),
    ("/page/api.js", "text/javascript; charset=utf-8", include_str!("api.js")),
    ("/images", "text/html; charset=utf-8", include_str!("images.html")),
    ("/page/images.js", "text/javascript; charset=utf-8", include_str!("images.js")),
    ("/page/gallery.js", "text/javascript; charset=utf-8", include_str!("gallery.js")),
    ("/page/mask.js", "text/javascript; charset=utf-8", include_str!("mask.js")),
    ("/page/markdown.js", "text/javascript; charset=utf-8", include_str!("markdown.js")),
    ("/page/page.js", "text/javascript; charset=utf-8", include_str!("page.js")),
    ("/page/store.js", "text/javascript; charset=utf-8", include_str!("store.js")),
];

/// Returns whether a path is one of the page's files, which need no key: the page asks for it.
pub(crate) fn has(path: &str) -> bool {
    FILES.iter().any(|(file, ..)| *file == path)
}

/// Adds the page's files to the routes.
pub(crate) fn routes(router: Router<Arc<App>>) -> Router<Arc<App>> {
    FILES.into_iter().fold(router, |router, (path, kind, text)| router.route(path, get(move || async move { file(kind, text) })))
}

fn file(kind: &'static str, text: &'static str) -> Response {
    let mut response = text.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    // The files change with the program only, but then together.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_small_and_its_code_cannot_make_markup() {
        assert!(FILES.iter().map(|(.., text)| text.len()).sum::<usize>() < 80_000);
        for (path, _, text) in FILES {
            for way in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "DOMParser", "style=", "onclick"]
            {
                assert!(!text.contains(way), "{path} has {way}");
            }
        }
        for (path, _, text) in FILES.iter().filter(|(_, kind, _)| kind.starts_with("text/html")) {
            assert!(!text.contains("<style") && text.matches("<script").count() == 1, "{path}");
        }
        assert!(has("/") && has("/page/app.js") && !has("/page/mod.rs"));
    }
}
