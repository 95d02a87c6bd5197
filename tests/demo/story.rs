//! The story itself, step by step.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use haptic_agent::client::{Client, ClientConfig, Credentials, StateRead};
use haptic_agent::clock::{Clock, SystemClock};
use haptic_agent::wire::state::State;

use super::http;
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
    agent_path: PathBuf,
    ctl_path: PathBuf,
    haproxy_path: PathBuf,
    haproxy_version: String,
    url: String,
    metrics: String,
    site: Site,
    interrupted: &'a AtomicBool,
}

type Step = fn(&mut Stage<'_>) -> Result<(), String>;

const STEPS: [(&str, Step); 10] = [
    ("HAProxy starts with a bootstrap configuration", bootstrap),
    ("the agent starts beside it", start_agent),
    ("a directory is pushed for the first time", first_push),
    ("the same directory once more", same_again),
    ("a broken configuration, while traffic goes on", broken),
    ("it is repaired", repair),
    ("a map changes, while traffic goes on", change_map),
    (
        "one write drains a server, another one brings it back",
        drain,
    ),
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
        println!("A directory of files, one HAProxy, and the agent between them.");
        let agent_path = processes::binary("haptic-agent")?;
        let ctl_path = processes::binary("hapticctl")?;
        let (haproxy_path, haproxy_version) = processes::find_haproxy()?;
        let io = |error: std::io::Error| error.to_string();
        let directory = short_directory().map_err(io)?;
        for name in ["live", "site"] {
            std::fs::create_dir(directory.path().join(name)).map_err(io)?;
        }
        let base = directory.path().join("live").display().to_string();
        let origin = origin::start().map_err(io)?;
        let places = Places {
            worker: format!("{base}/haproxy-worker.sock"),
            base,
            http: free_port().map_err(io)?,
            origin: origin.port(),
            check: free_port().map_err(io)?,
        };
        Ok(Self {
            agent: None,
            haproxy: None,
            site: site::small(&places)?,
            directory,
            places,
            agent_path,
            ctl_path,
            haproxy_path,
            haproxy_version,
            url: String::new(),
            metrics: String::new(),
            interrupted,
        })
    }

    fn base(&self) -> &Path {
        Path::new(&self.places.base)
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

    /// The state, as a program reads it.
    fn state(&self, verify: bool) -> Result<State, String> {
        let credentials = Credentials::new(USER, PASSWORD).map_err(|e| e.to_string())?;
        let config = ClientConfig::new(&self.url, credentials).map_err(|e| e.to_string())?;
        let read = StateRead {
            verify,
            plan: false,
        };
        Client::new(config).state(read).map_err(|e| e.to_string())
    }

    /// Runs `hapticctl` with `words` and shows what it says.
    fn ctl(&self, words: &str, want: i32) -> Result<String, String> {
        let environment = [
            ("HAPTIC_AGENT", self.url.as_str()),
            ("HAPTIC_USERNAME", USER),
            ("HAPTIC_PASSWORD", PASSWORD),
        ];
        say(&format!("$ hapticctl {words}"));
        let words: Vec<&str> = words.split(' ').collect();
        let directory = self.directory.path();
        let (code, said) = processes::ctl(&self.ctl_path, directory, &words, &environment)?;
        for line in said.lines() {
            say(&format!("  | {line}"));
        }
        if code == want {
            return Ok(said);
        }
        Err(format!("hapticctl ended with {code}, not {want}: {said}"))
    }

    /// Writes `site` into the directory that is pushed.
    fn write(&self, site: &Site) -> Result<(), String> {
        site::write(site, &self.directory.path().join("site"))
    }

    /// Asks HAProxy for `/` of `host`.
    fn ask(&self, host: &str) -> Result<String, String> {
        let head = format!("Host: {host}\r\n");
        let answer = http::get(&self.proxy_address(), "/", &head)?;
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

    fn same_worker(&self, before: Option<&str>) -> Result<(), String> {
        if self.worker().as_deref() != before {
            return Err("the worker is another one".into());
        }
        say("the worker is the same one as before");
        Ok(())
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
    say("$ cd live && haproxy -W -S $PWD/haproxy-master.sock -f haproxy.cfg");
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
    let check = format!("127.0.0.1:{}", stage.places.check);
    let overrides = stage.directory.path().join("overrides");
    let overrides = overrides.display().to_string();
    let environment = [
        ("DATAPLANE_USERNAME", USER),
        ("DATAPLANE_PASSWORD", PASSWORD),
        ("HAPTIC_RESPONDER_KV_DIR", overrides.as_str()),
        ("HAPTIC_RESPONDER_KV_MISSING", "make"),
        ("HAPTIC_RESPONDER_MONITORING_ADDR", ""),
    ];
    stage.agent = Some(Agent::start(
        &stage.agent_path,
        stage.base(),
        &check,
        &environment,
    )?);
    say(
        "$ export DATAPLANE_USERNAME=... DATAPLANE_PASSWORD=... HAPTIC_RESPONDER_KV_DIR=$PWD/overrides HAPTIC_RESPONDER_KV_MISSING=make",
    );
    say("$ haptic-agent --base-dir live --listen 127.0.0.1:0 --metrics-listen 127.0.0.1:0 \\");
    say(&format!(
        "      --check-listen {check} --reload-interval-min 0"
    ));
    let named = |stage: &mut Stage<'_>, listener: &str| stage.agent.as_mut()?.listening(listener);
    let api = stage.wait("the API's address", |stage| named(stage, "api"))?;
    stage.url = format!("http://{api}");
    stage.metrics = stage.wait("the metrics' address", |stage| named(stage, "metrics"))?;
    stage.ctl("wait --timeout 30s", 0)?;
    let state = stage.state(false)?;
    say(&format!(
        "it sees HAProxy {}, worker {}, and holds no plan yet",
        state.haproxy.version, state.haproxy.worker_pid
    ));
    require("applied_plan_id", &state.applied_plan_id, "")
}

fn first_push(stage: &mut Stage<'_>) -> Result<(), String> {
    stage.write(&stage.site)?;
    let before = stage.worker();
    stage.ctl("plan site", 0)?;
    stage.ctl("push site", 0)?;
    if stage.worker() == before {
        return Err("no new worker came".into());
    }
    for (path, content) in &stage.site {
        on_disk(stage, path, content)?;
    }
    stage.expect("shop.example", "200 backend shop")?;
    stage.expect("blog.example", "200 backend blog")
}

fn same_again(stage: &mut Stage<'_>) -> Result<(), String> {
    let before = stage.worker();
    stage.ctl("push site", 0)?;
    stage.same_worker(before.as_deref())
}

fn change_map(stage: &mut Stage<'_>) -> Result<(), String> {
    stage.expect("news.example", "200 backend fallback")?;
    let before = stage.worker();
    let traffic = Traffic::start(&stage.proxy_address(), "shop.example", "backend shop\n");
    say("$ echo news.example blog >>site/maps/host.map");
    let map = stage.site.entry("maps/host.map".into()).or_default();
    map.push_str("news.example blog\n");
    stage.write(&stage.site)?;
    stage.ctl("push site", 0)?;
    stage.expect("news.example", "200 backend blog")?;
    stage.same_worker(before.as_deref())?;
    stage.content(traffic)
}

fn broken(stage: &mut Stage<'_>) -> Result<(), String> {
    let before = stage.worker();
    let mut site = stage.site.clone();
    let config = site.entry("haproxy.cfg".into()).or_default();
    *config = config.replace("balance roundrobin", "blance roundrobin");
    let map = site.entry("maps/host.map".into()).or_default();
    map.push_str("shop.example blog\n");
    stage.write(&site)?;
    say("$ sed -i 's/balance roundrobin/blance roundrobin/' site/haproxy.cfg");
    let traffic = Traffic::start(&stage.proxy_address(), "shop.example", "backend shop\n");
    let said = stage.ctl("push site", 1)?;
    if !said.contains("'blance'") {
        return Err("HAProxy's words are not in the answer".into());
    }
    for (path, content) in &stage.site {
        on_disk(stage, path, content)?;
    }
    say("every file on HAProxy's disk is byte for byte what it was");
    stage.same_worker(before.as_deref())?;
    stage.content(traffic)
}

fn repair(stage: &mut Stage<'_>) -> Result<(), String> {
    let config = stage.site.entry("haproxy.cfg".into()).or_default();
    *config = config.replace("balance roundrobin", "balance leastconn");
    stage.write(&stage.site)?;
    say("$ sed -i 's/blance roundrobin/balance leastconn/' site/haproxy.cfg");
    stage.ctl("push site", 0)?;
    stage.expect("shop.example", "200 backend shop")
}

fn drain(stage: &mut Stage<'_>) -> Result<(), String> {
    let before = stage.worker();
    let traffic = Traffic::start(&stage.proxy_address(), "shop.example", "backend shop\n");
    for (words, want) in [
        ("drain shop/shop1 --kv-dir overrides", "DRAIN (agent)"),
        ("ready shop/shop1 --kv-dir overrides", "UP"),
    ] {
        stage.ctl(words, 0)?;
        let seen = stage.wait(&format!("shop/shop1 to be {want}"), |stage| {
            let status = processes::server_status(Path::new(&stage.places.worker), "shop", "shop1");
            status.filter(|status| match want {
                "UP" => status == "UP" || status == "no check",
                _ => status == want,
            })
        })?;
        say(&format!("HAProxy shows shop/shop1 as {seen}"));
    }
    stage.same_worker(before.as_deref())?;
    stage.content(traffic)
}

fn state_and_metrics(stage: &mut Stage<'_>) -> Result<(), String> {
    stage.ctl("state", 0)?;
    stage.ctl("verify site", 0)?;
    let state = stage.state(true)?;
    let applied = &state.applied_plan_id;
    require("worker_ops_plan_id", &state.worker_ops_plan_id, applied)?;
    // The last reload was the repair's; the map came without one.
    require("lkg_plan_id", &state.lkg_plan_id, &state.running_plan_id)?;
    if state.files.len() != stage.site.len() {
        return Err(format!("the agent holds {} files", state.files.len()));
    }
    say(&format!("GET http://{}/metrics", stage.metrics));
    let answer = http::get(&stage.metrics, "/metrics", "")?;
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

fn on_disk(stage: &Stage<'_>, path: &str, content: &str) -> Result<(), String> {
    let held = std::fs::read_to_string(stage.base().join(path))
        .map_err(|error| format!("{path}: {error}"))?;
    if held == content {
        return Ok(());
    }
    Err(format!("{path} on disk is not what it should be"))
}

fn require(name: &str, value: &str, want: &str) -> Result<(), String> {
    if value == want {
        return Ok(());
    }
    Err(format!("{name} is {value:?}, not {want:?}"))
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
