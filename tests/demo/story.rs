//! The story itself, step by step.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use haptic_agent::clock::{Clock, SystemClock};
use serde_json::Value;

use super::http::{self, Answer};
use super::origin;
use super::processes::{self, Agent, Process};
use super::site::{self, Places, Site};
use super::traffic::Traffic;

/// The longest that a step waits for something to become true.
const PATIENCE: Duration = Duration::from_secs(30);
/// The requests that have to come through after a change before a step is content.
const ENOUGH_REQUESTS: u64 = 50;

const USER: &str = "admin";
const PASSWORD: &str = "demo-password";

/// The step that failed, and why.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Its heading.
    pub(crate) step: &'static str,
    /// What went wrong, with the ends of the logs.
    pub(crate) why: String,
}

/// What the steps share. Fields are dropped in order: the agent ends first.
struct Stage<'a> {
    agent: Option<Agent>,
    haproxy: Option<Process>,
    directory: tempfile::TempDir,
    places: Places,
    binary: PathBuf,
    haproxy_path: PathBuf,
    haproxy_version: String,
    api: String,
    metrics: String,
    sequence: u64,
    site: Site,
    interrupted: &'a AtomicBool,
}

type Step = fn(&mut Stage<'_>) -> Result<(), String>;

const STEPS: [(&str, Step); 9] = [
    ("HAProxy starts with a bootstrap configuration", bootstrap),
    ("the agent starts beside it", start_agent),
    ("the controller sends the first complete set", first_set),
    ("the same set once more", same_again),
    ("a map changes", change_map),
    ("a broken configuration, while traffic goes on", broken),
    ("the controller repairs it", repair),
    ("what the agent holds now", state_and_metrics),
    ("everything stops", stop),
];

/// Tells it. Whatever happens, children and files are gone when this returns.
pub(crate) fn tell(interrupted: &AtomicBool) -> Result<(), Failure> {
    let start = SystemClock.now();
    let mut stage = Stage::set(interrupted).map_err(|why| Failure {
        step: "setting the scene",
        why,
    })?;
    for (number, (step, act)) in STEPS.iter().enumerate() {
        println!("\n{}. {step}", number + 1);
        act(&mut stage).map_err(|why| Failure {
            step,
            why: stage.with_logs(&why),
        })?;
    }
    println!(
        "\nAll of it happened, in {:.1} s.",
        SystemClock.now().duration_since(start).as_secs_f64()
    );
    Ok(())
}

impl<'a> Stage<'a> {
    fn set(interrupted: &'a AtomicBool) -> Result<Self, String> {
        println!("A controller, one HAProxy, and the agent between them.");
        let binary = processes::agent_binary()?;
        let (haproxy_path, haproxy_version) = processes::find_haproxy()?;
        let io = |error: std::io::Error| error.to_string();
        let directory = short_directory().map_err(io)?;
        let base = directory.path().display().to_string();
        let origin = origin::start().map_err(io)?;
        let places = Places {
            worker: format!("{base}/haproxy-worker.sock"),
            base,
            http: free_port().map_err(io)?,
            origin: origin.port(),
        };
        Ok(Self {
            agent: None,
            haproxy: None,
            site: site::small(&places)?,
            directory,
            places,
            binary,
            haproxy_path,
            haproxy_version,
            api: String::new(),
            metrics: String::new(),
            sequence: 0,
            interrupted,
        })
    }

    fn base(&self) -> &Path {
        self.directory.path()
    }

    fn haproxy_log(&self) -> PathBuf {
        self.base().join(".haproxy.log")
    }

    fn proxy_address(&self) -> String {
        format!("127.0.0.1:{}", self.places.http)
    }

    /// Polls until there is a value, a child has died, or patience has run out.
    fn wait<T>(
        &mut self,
        what: &str,
        mut look: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T, String> {
        let start = SystemClock.now();
        loop {
            if self.interrupted.load(Ordering::Acquire) {
                return Err("interrupted".into());
            }
            if let Some(value) = look(self) {
                return Ok(value);
            }
            if self.haproxy.as_mut().is_some_and(|p| !p.alive()) {
                return Err(format!("HAProxy ended while waiting for {what}"));
            }
            if self.agent.as_mut().is_some_and(|a| !a.process.alive()) {
                return Err(format!("the agent ended while waiting for {what}"));
            }
            if SystemClock.now().duration_since(start) > PATIENCE {
                return Err(format!("{what}: not within {} s", PATIENCE.as_secs()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn with_logs(&mut self, why: &str) -> String {
        let mut text = why.to_owned();
        if let Some(agent) = self.agent.as_mut() {
            text.push_str("\n\nthe agent's last records:\n");
            text.push_str(&agent.last_records());
        }
        let said = std::fs::read_to_string(self.haproxy_log()).unwrap_or_default();
        let lines: Vec<&str> = said.lines().collect();
        let from = lines.len().saturating_sub(20);
        text.push_str("\n\nHAProxy's last words:\n");
        text.push_str(&lines.get(from..).unwrap_or_default().join("\n"));
        text
    }

    fn call(&self, method: &str, target: &str, head: &str, body: &[u8]) -> Result<Answer, String> {
        let head = format!("{}{head}", http::authorization(USER, PASSWORD));
        http::request(&self.api, method, target, &head, body)
    }

    fn state(&self) -> Result<Value, String> {
        let answer = self.call("GET", "/v1/state?plan=0", "", b"")?;
        match answer.status {
            200 => answer.json(),
            other => Err(format!("GET /v1/state: {other}: {}", answer.body)),
        }
    }

    /// Pushes `site` as plan `id` and gives the result that the agent answered.
    fn apply(&mut self, site: &Site, id: &str, mode: &str) -> Result<Value, String> {
        self.sequence += 1;
        let state = self.state()?;
        let manifest = site::manifest(site, id, self.sequence, mode, &state);
        let parts = site::lacking(site, &state);
        let names: Vec<&str> = parts.iter().map(|(path, _)| *path).collect();
        say(&format!(
            "POST /v1/apply: plan {id}, mode {mode}, {} files listed, {} sent{}{}",
            site.len(),
            parts.len(),
            if parts.is_empty() { "" } else { ": " },
            names.join(", ")
        ));
        let (head, body) = http::form(&manifest, &parts);
        let answer = self.call("POST", "/v1/apply", &head, &body)?;
        if answer.status != 200 {
            return Err(format!("{}: {}", answer.status, answer.body));
        }
        answer.json()
    }

    /// Asks HAProxy for `/` of `host`.
    fn ask(&self, host: &str) -> Result<String, String> {
        let head = format!("Host: {host}\r\n");
        let answer = http::request(&self.proxy_address(), "GET", "/", &head, b"")?;
        say(&format!(
            "GET http://{host}/ -> {} {}",
            answer.status,
            answer.body.trim()
        ));
        Ok(format!("{} {}", answer.status, answer.body.trim()))
    }

    fn expect(&self, host: &str, want: &str) -> Result<(), String> {
        let got = self.ask(host)?;
        if got == want {
            return Ok(());
        }
        Err(format!("{host} was answered {got:?}, not {want:?}"))
    }

    fn worker(&self) -> Option<String> {
        let info = processes::show_info(Path::new(&self.places.worker))?;
        processes::info_field(&info, "Pid")
    }

    /// Lets traffic run until enough has come through, and requires that nothing failed.
    fn content(&mut self, traffic: Traffic) -> Result<(), String> {
        let before = traffic.served();
        self.wait("traffic after the change", |_| {
            (traffic.served() >= before + ENOUGH_REQUESTS).then_some(())
        })?;
        let tally = traffic.stop();
        match tally.failure {
            None => {
                say(&format!(
                    "meanwhile {} requests were served and none failed",
                    tally.served
                ));
                Ok(())
            }
            Some(failure) => Err(format!(
                "{} requests were served, but one was not: {failure}",
                tally.served
            )),
        }
    }
}

fn bootstrap(stage: &mut Stage<'_>) -> Result<(), String> {
    let text = stage.places.fill(site::BOOTSTRAP);
    std::fs::write(stage.base().join("haproxy.cfg"), text).map_err(|e| e.to_string())?;
    let log = stage.haproxy_log();
    let haproxy = processes::start_haproxy(&stage.haproxy_path, stage.base(), &log)?;
    say("$ haproxy -W -S $PWD/haproxy-master.sock -f haproxy.cfg");
    say(&format!(
        "{}, master {}",
        stage.haproxy_version,
        haproxy.id()
    ));
    stage.haproxy = Some(haproxy);
    let worker = stage.wait("the worker's socket", |stage| stage.worker())?;
    say(&format!(
        "worker {worker} serves, below {}",
        stage.places.base
    ));
    stage.expect("shop.example", "503 nobody has configured me yet")
}

fn start_agent(stage: &mut Stage<'_>) -> Result<(), String> {
    stage.agent = Some(Agent::start(&stage.binary, stage.base(), USER, PASSWORD)?);
    say("$ haptic-agent --base-dir . --listen 127.0.0.1:0 --metrics-listen 127.0.0.1:0 \\");
    say("      --reload-interval-min 0");
    let named = |stage: &mut Stage<'_>, listener: &str| stage.agent.as_mut()?.listening(listener);
    stage.api = stage.wait("the API's address", |stage| named(stage, "api"))?;
    stage.metrics = stage.wait("the metrics' address", |stage| named(stage, "metrics"))?;
    stage.wait("GET /readyz to say ready", |stage| {
        let answer = http::request(&stage.api, "GET", "/readyz", "", b"").ok()?;
        (answer.status == 200).then_some(())
    })?;
    say(&format!("GET http://{}/readyz -> ready", stage.api));
    let state = stage.state()?;
    say(&format!(
        "it sees HAProxy {}, worker {}, and holds no plan yet",
        text(&state["haproxy"]["version"]),
        state["haproxy"]["worker_pid"]
    ));
    require("applied_plan_id", &state["applied_plan_id"], "")
}

fn first_set(stage: &mut Stage<'_>) -> Result<(), String> {
    let site = stage.site.clone();
    let result = stage.apply(&site, "plan-1", "reload")?;
    accepted(&result, "reload")?;
    let worker = stage.worker().and_then(|pid| pid.parse::<u64>().ok());
    if worker.is_none() || result["reload"]["worker_pid"].as_u64() != worker {
        return Err(format!(
            "worker {worker:?} serves, and the answer says {result}"
        ));
    }
    for (path, content) in &site {
        on_disk(stage, path, content)?;
    }
    stage.expect("shop.example", "200 backend shop")?;
    stage.expect("blog.example", "200 backend blog")
}

fn same_again(stage: &mut Stage<'_>) -> Result<(), String> {
    let before = stage.worker();
    let site = stage.site.clone();
    let result = stage.apply(&site, "plan-1", "auto")?;
    accepted(&result, "noop")?;
    if stage.worker() != before {
        return Err("the worker is another one".into());
    }
    say("the worker is the same one as before");
    Ok(())
}

fn change_map(stage: &mut Stage<'_>) -> Result<(), String> {
    stage.expect("news.example", "200 backend fallback")?;
    let traffic = Traffic::start(&stage.proxy_address(), "shop.example", "backend shop\n");
    let map = stage.site.entry("maps/host.map".into()).or_default();
    map.push_str("news.example blog\n");
    let site = stage.site.clone();
    let result = stage.apply(&site, "plan-2", "reload")?;
    accepted(&result, "reload")?;
    stage.expect("news.example", "200 backend blog")?;
    stage.content(traffic)
}

fn broken(stage: &mut Stage<'_>) -> Result<(), String> {
    let before = stage.worker();
    let mut site = stage.site.clone();
    let config = site.entry("haproxy.cfg".into()).or_default();
    *config = config.replace("balance roundrobin", "blance roundrobin");
    let map = site.entry("maps/host.map".into()).or_default();
    map.push_str("shop.example blog\n");
    let traffic = Traffic::start(&stage.proxy_address(), "shop.example", "backend shop\n");
    let result = stage.apply(&site, "plan-3", "reload")?;
    if result["ok"] != false || result["mode"] != "rejected" {
        return Err(format!("it was not refused: {result}"));
    }
    say(&format!(
        "ok: false, mode: {}, stage: {}, rolled back: {}",
        text(&result["mode"]),
        text(&result["error"]["stage"]),
        result["rollback"]["performed"]
    ));
    let words = text(&result["error"]["message"]);
    if !words.contains("'blance'") {
        return Err(format!("HAProxy's words are not in the answer: {result}"));
    }
    for line in words.trim_end().lines() {
        say(&format!("  | {line}"));
    }
    for (path, content) in &stage.site.clone() {
        on_disk(stage, path, content)?;
    }
    say("every file on disk is byte for byte what it was");
    if stage.worker() != before {
        return Err("the worker is another one".into());
    }
    say("the worker is the same one as before");
    stage.content(traffic)
}

fn repair(stage: &mut Stage<'_>) -> Result<(), String> {
    let state = stage.state()?;
    say(&format!(
        "state: applied plan {:?}, last known good {:?}",
        text(&state["applied_plan_id"]),
        text(&state["lkg_plan_id"])
    ));
    let config = stage.site.entry("haproxy.cfg".into()).or_default();
    *config = config.replace("balance roundrobin", "balance leastconn");
    let site = stage.site.clone();
    let result = stage.apply(&site, "plan-4", "reload")?;
    accepted(&result, "reload")?;
    stage.expect("shop.example", "200 backend shop")
}

fn state_and_metrics(stage: &mut Stage<'_>) -> Result<(), String> {
    let answer = stage.call("GET", "/v1/state?verify=1", "", b"")?;
    say("GET /v1/state?verify=1");
    let state = answer.json()?;
    for name in ["applied_plan_id", "running_plan_id", "lkg_plan_id"] {
        say(&format!("  {name}: {}", state[name]));
        require(name, &state[name], "plan-4")?;
    }
    for name in ["generation", "applied_token"] {
        say(&format!("  {name}: {}", state[name]));
    }
    if let Some(files) = state["files"].as_object() {
        for (path, file) in files {
            let digest = text(&file["digest"]);
            let short = digest.get(..16).unwrap_or(digest);
            say(&format!("  {path}: {} bytes, {short}...", file["size"]));
        }
    }
    say(&format!("GET http://{}/metrics", stage.metrics));
    let answer = http::request(&stage.metrics, "GET", "/metrics", "", b"")?;
    let mut counted = 0;
    for line in answer.body.lines().filter(|l| !l.ends_with(" 0")) {
        let telling = [
            "haptic_agent_apply_total",
            "haptic_agent_reloads_total",
            "haptic_agent_rollbacks_total",
            "process_resident_memory_bytes",
        ];
        if telling.iter().any(|name| line.starts_with(name)) {
            say(&format!("  {line}"));
            counted += 1;
        }
    }
    if counted == 0 {
        return Err(format!("no metric tells of it: {}", answer.body));
    }
    Ok(())
}

fn stop(stage: &mut Stage<'_>) -> Result<(), String> {
    if let Some(mut agent) = stage.agent.take() {
        match agent.process.end() {
            Some(0) => say("the agent has stopped, exit code 0"),
            other => {
                let records = agent.last_records();
                return Err(format!("the agent ended with {other:?}\n{records}"));
            }
        }
    }
    if let Some(mut haproxy) = stage.haproxy.take() {
        haproxy.end();
        say("HAProxy has stopped");
    }
    Ok(())
}

/// Prints what an accepted apply did, and requires that it is what was expected.
fn accepted(result: &Value, mode: &str) -> Result<(), String> {
    if result["ok"] != true || result["mode"] != mode {
        return Err(format!("expected ok with mode {mode}, got {result}"));
    }
    let reload = &result["reload"];
    let reloaded = if reload["performed"] == true {
        format!(
            ", reload took {} ms, new worker {}",
            reload["took_ms"], reload["worker_pid"]
        )
    } else {
        String::new()
    };
    say(&format!(
        "ok: true, mode: {mode}, {} ms in all{reloaded}",
        result["timing"]["total_ms"]
    ));
    Ok(())
}

fn on_disk(stage: &Stage<'_>, path: &str, content: &str) -> Result<(), String> {
    let held = std::fs::read_to_string(stage.base().join(path))
        .map_err(|error| format!("{path}: {error}"))?;
    if held == content {
        return Ok(());
    }
    Err(format!("{path} on disk is not what it should be"))
}

fn require(name: &str, value: &Value, want: &str) -> Result<(), String> {
    if value == want {
        return Ok(());
    }
    Err(format!("{name} is {value}, not {want:?}"))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

fn say(line: &str) {
    println!("   {line}");
}

/// A directory whose name leaves room for a socket's.
fn short_directory() -> std::io::Result<tempfile::TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("haptic-demo-");
    if std::env::temp_dir().as_os_str().len() <= 40 {
        builder.tempdir()
    } else {
        builder.tempdir_in("/tmp")
    }
}

fn free_port() -> std::io::Result<u16> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    Ok(listener.local_addr()?.port())
}
