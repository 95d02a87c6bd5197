//! Which request goes where: route, method, credentials, in this order.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::apply::Agent;
use crate::http::auth::BasicAuth;
use crate::http::{Method, Request, Response, ServerStats, Service, Status};
use crate::metrics::{self, Metrics};

use super::{apply, health, refused, state};

/// Serves the API listener.
pub struct Api {
    /// The agent.
    pub agent: Arc<Agent>,
    /// Who may read the state and apply.
    pub auth: BasicAuth,
    /// Where requests are counted.
    pub metrics: Arc<Metrics>,
}

/// Serves the metrics listener.
pub struct MetricsApi {
    /// What is shown.
    pub metrics: Arc<Metrics>,
    /// The API listener's own counts.
    pub api: Arc<ServerStats>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    Healthz,
    Readyz,
    State,
    Apply,
}

impl Route {
    fn of(path: &str) -> Option<Self> {
        match path {
            "/healthz" => Some(Self::Healthz),
            "/readyz" => Some(Self::Readyz),
            "/v1/state" => Some(Self::State),
            "/v1/apply" => Some(Self::Apply),
            _ => None,
        }
    }

    fn allow(self) -> &'static str {
        match self {
            Self::Healthz | Self::Readyz | Self::State => "GET, HEAD",
            Self::Apply => "POST",
        }
    }

    fn allows(self, method: &Method) -> bool {
        match self {
            Self::Healthz | Self::Readyz | Self::State => {
                matches!(method, Method::Get | Method::Head)
            }
            Self::Apply => matches!(method, Method::Post),
        }
    }

    fn needs_credentials(self) -> bool {
        match self {
            Self::Healthz | Self::Readyz => false,
            Self::State | Self::Apply => true,
        }
    }
}

impl Service for Api {
    fn call(&self, request: &mut Request<'_>) -> Response {
        let path = request.path();
        let response = self.answer(request);
        self.metrics.count_request(path, response.status().code());
        response
    }
}

impl Api {
    fn answer(&self, request: &mut Request<'_>) -> Response {
        let Some(route) = Route::of(request.path()) else {
            return Response::text(Status::NotFound, "not found\n");
        };
        if !route.allows(request.method()) {
            return not_allowed(route.allow());
        }
        if route.needs_credentials() && !self.auth.check(request.header("authorization")) {
            let peer = request.peer().to_string();
            refused(
                "credentials",
                Status::Unauthorized,
                &format!("wrong or missing credentials from {peer}"),
            );
            return Response::text(Status::Unauthorized, "wrong or missing credentials\n")
                .header("WWW-Authenticate", "Basic realm=\"haptic-agent\"");
        }
        match route {
            Route::Healthz => health::healthz(),
            Route::Readyz => health::readyz(&self.agent),
            Route::State => state::get(&self.agent, request),
            Route::Apply => apply::post(&self.agent, &self.metrics, request),
        }
    }
}

impl Service for MetricsApi {
    fn call(&self, request: &mut Request<'_>) -> Response {
        let path = request.path();
        let response = match (path, request.method()) {
            ("/metrics", Method::Get | Method::Head) => {
                self.take_over();
                let text = self.metrics.render();
                Response::bytes(Status::Ok, metrics::CONTENT_TYPE, text.into_bytes())
            }
            ("/metrics", Method::Post | Method::Other) => not_allowed("GET, HEAD"),
            _ => Response::text(Status::NotFound, "not found\n"),
        };
        self.metrics.count_request(path, response.status().code());
        response
    }
}

impl MetricsApi {
    /// The server counts for itself; what it counted is shown as of now.
    fn take_over(&self) {
        let shown = &self.metrics;
        shown.connections.set(self.api.open.load(Ordering::Relaxed));
        shown
            .http_accept_errors
            .set(self.api.accept_errors.load(Ordering::Relaxed));
        let shed = self.api.refused_busy.load(Ordering::Relaxed)
            + self.api.evicted.load(Ordering::Relaxed);
        shown.http_connections_shed.set(shed);
        shown
            .http_panics
            .set(self.api.panics.load(Ordering::Relaxed));
    }
}

fn not_allowed(allow: &'static str) -> Response {
    Response::text(Status::MethodNotAllowed, "method not allowed\n").header("Allow", allow)
}
