//! The screen as a person sees it: a real terminal (tmux) driven by keys.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{Node, Running, Scratch, agent, get};

const BINARY: &str = env!("CARGO_BIN_EXE_gpuprod");
/// Long enough for a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// A terminal with a shell in it.
struct Terminal {
    socket: String,
}

impl Terminal {
    fn open(name: &str, width: u16, height: u16) -> Self {
        let terminal = Self { socket: format!("gpuprod-{name}-{}", std::process::id()) };
        let (x, y) = (width.to_string(), height.to_string());
        let shell = "env PS1='shell> ' LANG=C.UTF-8 sh";
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", &x, "-y", &y, shell]);
        terminal.wait("shell>");
        terminal
    }

    fn tmux(&self, args: &[&str]) -> String {
        let output = Command::new("tmux").args(["-u", "-L", &self.socket]).args(args).stdin(Stdio::null()).output();
        let output = output.expect("tmux is not installed");
        assert!(output.status.success(), "tmux {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn run(&self, command: &str) {
        self.tmux(&["send-keys", "-l", command]);
        self.key("Enter");
    }

    fn key(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// The screen as soon as it shows these words.
    fn wait(&self, words: &str) -> String {
        self.until(words, |screen| screen.contains(words))
    }

    fn until(&self, what: &str, is: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let screen = self.screen();
            if is(&screen) {
                return screen;
            }
            assert!(begun.elapsed() < PATIENCE, "no {what:?} within {PATIENCE:?}:\n{screen}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The pid of the program that was run.
    fn pid(&self) -> u32 {
        let shell = self.tmux(&["display-message", "-p", "#{pane_pid}"]);
        let children = format!("/proc/{0}/task/{0}/children", shell.trim());
        let children = std::fs::read_to_string(children).unwrap();
        children.split_whitespace().next().unwrap_or_else(|| panic!("no program runs")).parse().unwrap()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = Command::new("tmux").args(["-L", &self.socket, "kill-server"]).status();
    }
}

/// The story as a recording.
fn story(scratch: &Scratch) -> String {
    let path = scratch.0.join("story.ticks");
    let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/scenarios/raid_rebuild_serving.scn");
    let scenario = gpuprod_sim::load(&scenario).unwrap();
    gpuprod_sim::write_recording(&scenario, &path).unwrap();
    path.to_str().unwrap().to_owned()
}

fn signal(name: &str, pid: u32) {
    assert!(Command::new("kill").args([name, &pid.to_string()]).status().unwrap().success());
}

fn gone(pid: u32) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        if state.is_empty() || state.rsplit(')').next().unwrap_or("").trim_start().starts_with('Z') {
            return true;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    false
}

#[test]
#[ignore = "needs Debian's tmux"]
fn a_recording_is_played_with_keys() {
    let scratch = Scratch::new("top-replay");
    let file = story(&scratch);
    let terminal = Terminal::open("replay", 80, 24);
    terminal.run(&format!("{BINARY} top --replay {file}"));
    let first = terminal.wait("nothing is wrong");
    assert!(first.contains("recording story.ticks") && first.contains("02:00:"), "the recording's clock: {first}");
    assert!(first.lines().all(|line| line.chars().count() <= 80));

    terminal.key("n");
    let found = terminal.wait("CRITICAL");
    assert!(found.contains("the rebuild of md0 starves all 8 GPUs since 02:10:0"), "{found}");
    terminal.key("Space");
    terminal.wait("PAUSED");
    // What was being drawn is drawn.
    std::thread::sleep(Duration::from_secs(1));
    let held = terminal.screen();
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(terminal.screen(), held, "a paused recording stands still");
    terminal.key("Right");
    let then =
        |screen: &str| screen.lines().next().and_then(|line| line.split("02:10:").nth(1)?.get(..2)?.parse().ok());
    let at: u32 = then(&held).unwrap();
    terminal.until("ten seconds more", |screen| then(screen) == Some(at + 10));
    terminal.key("Left");
    terminal.until("ten seconds less", |screen| then(screen) == Some(at));

    terminal.key("e");
    let evidence = terminal.wait("confirmed 02:10:3");
    assert!(evidence.contains("token rate"), "{evidence}");
    terminal.key("End");
    terminal.wait("not kv");
    terminal.key("Escape");
    terminal.wait("ARRAYS");
    terminal.key("?");
    terminal.wait("evidence of the selected finding");
    terminal.key("Escape");

    terminal.tmux(&["resize-window", "-x", "200", "-y", "60"]);
    let large = terminal.wait("SM CLOCK");
    assert!(large.contains("looked at and rejected"), "a tall screen shows the evidence at once: {large}");
    terminal.tmux(&["resize-window", "-x", "40", "-y", "10"]);
    terminal.until("a narrow screen", |screen| screen.contains("CRITICAL") && !screen.contains("SM CLOCK"));
    terminal.tmux(&["resize-window", "-x", "80", "-y", "24"]);
    terminal.wait("FINDINGS");

    terminal.key("q");
    let after = terminal.wait("shell>");
    assert!(!after.contains("CRITICAL"), "the screen is given back: {after}");
    terminal.run("stty -a | tr ' ' '\\n' | grep -cxE 'icanon;?|echo;?'");
    terminal.until("a cooked terminal", |screen| screen.lines().any(|line| line == "2"));
}

#[test]
#[ignore = "needs Debian's tmux"]
fn whatever_ends_it_gives_the_terminal_back() {
    let scratch = Scratch::new("top-ends");
    let file = story(&scratch);
    let terminal = Terminal::open("ends", 80, 24);
    for how in ["-TERM", "-INT", "-HUP", "C-c"] {
        terminal.run(&format!("clear; {BINARY} top --replay {file}"));
        terminal.wait("nothing is wrong");
        match how {
            "C-c" => terminal.key("C-c"),
            signal => self::signal(signal, terminal.pid()),
        }
        terminal.until("the shell", |screen| !screen.contains("nothing is wrong") && screen.contains("shell>"));
    }
    terminal.run("clear; stty -a | tr ' ' '\\n' | grep -cxE 'icanon;?|echo;?'");
    terminal.until("a cooked terminal", |screen| screen.lines().any(|line| line == "2"));

    // A terminal that hangs up ends it, also where SIGHUP is ignored; it must not spin without one.
    for ignore in ["", "trap '' HUP; "] {
        let terminal = Terminal::open("hangup", 80, 24);
        terminal.run(&format!("{ignore}{BINARY} top --replay {file}"));
        terminal.wait("nothing is wrong");
        let pid = terminal.pid();
        drop(terminal);
        assert!(gone(pid), "it lives on without a terminal ({ignore:?})");
    }
}

#[test]
#[ignore = "needs Debian's tmux"]
fn a_terminal_without_colours_or_cursor() {
    let scratch = Scratch::new("top-plain");
    let file = story(&scratch);
    let terminal = Terminal::open("plain", 80, 24);
    terminal.run(&format!("NO_COLOR=1 {BINARY} top --replay {file}"));
    terminal.wait("nothing is wrong");
    // Back to the terminal's own colours (39, 49) is no colour.
    let raw = terminal.tmux(&["capture-pane", "-p", "-e"]).replace("\u{1b}[39m", "").replace("\u{1b}[49m", "");
    assert!(!raw.contains("[3") && !raw.contains("[4"), "no colour: {raw:?}");
    terminal.key("q");
    terminal.wait("shell>");
    terminal.run(&format!("clear; TERM=dumb {BINARY} top --replay {file}"));
    let page = terminal.wait("one plain page");
    assert!(page.contains("this terminal (TERM) cannot place text"), "{page}");
}

#[test]
#[ignore = "needs Debian's tmux"]
fn a_running_agent_is_shown_and_missed() {
    let scratch = Scratch::new("top-agent");
    let node = Node::play("raid_rebuild_serving.scn", 400, &scratch.0.join("host"));
    let (agent, address): (Running, String) = agent(&scratch.0, &node);
    let begun = Instant::now();
    while get(&address, "/api/v1/frame").is_none_or(|body| !body.starts_with('{')) {
        assert!(begun.elapsed() < PATIENCE, "the agent does not tick");
        std::thread::sleep(Duration::from_millis(100));
    }
    let terminal = Terminal::open("agent", 200, 60);
    terminal.run(&format!("{BINARY} top --attach {}/state/gpuprod.sock", scratch.0.display()));
    let screen = terminal.until("eight GPUs", |screen| screen.contains("live: agent") && screen.contains("68/80 G"));
    assert!(screen.contains("md0 raid5") && screen.contains("vllm") && screen.contains("tok/s"), "{screen}");
    terminal.key("q");
    terminal.wait("shell>");

    // Over HTTP: the public frame, without processes.
    terminal.run(&format!("clear; {BINARY} top --attach http://{address}"));
    let public =
        terminal.until("the public frame", |screen| screen.contains("live: agent") && screen.contains("68/80 G"));
    assert!(public.contains(&format!("http://{address}")), "{public}");
    // The agent goes: its last frame is never shown as live.
    drop(agent);
    let stale = terminal.wait("STALE");
    assert!(!stale.contains("live:") && stale.contains("no news for"), "{stale}");
    terminal.key("q");
    terminal.wait("shell>");

    // Nobody there: said at once, and an error.
    terminal.run(&format!("clear; {BINARY} top --attach {}/state/gpuprod.sock; echo code $?", scratch.0.display()));
    let nobody = terminal.wait("code 1");
    assert!(nobody.contains("no agent listens there"), "{nobody}");
}

#[test]
#[ignore = "needs Debian's tmux"]
fn without_an_agent_it_samples_itself() {
    let scratch = Scratch::new("top-own");
    let node = Node::play("raid_rebuild_serving.scn", 400, &scratch.0.join("host"));
    let config = scratch.0.join("own.yaml");
    std::fs::write(&config, format!("state_dir: {}/state\n", scratch.0.display())).unwrap();
    let library = gpuprod_fake_nvml::library().unwrap();
    let terminal = Terminal::open("own", 80, 24);
    terminal.run(&format!(
        "{}={} {BINARY} top --config {} --host-root {} --nvml-library {} --engine {}",
        gpuprod_fake_nvml::STATE,
        scratch.0.join("host/nvml.json").display(),
        config.display(),
        scratch.0.join("host").display(),
        library.display(),
        node.engine.url()
    ));
    let screen = terminal.until("eight GPUs", |screen| screen.contains("68/80 G") && screen.contains("tok/s"));
    assert!(screen.contains("live: own sampling, no agent"), "{screen}");
    let pid = terminal.pid();
    let before = cpu(pid);
    std::thread::sleep(Duration::from_secs(10));
    let used = cpu(pid) - before;
    println!("own sampling and the screen: {} ms of CPU in 10 s", used * 10);
    assert!(used < 100, "more than a tenth of a processor: {used} hundredths of a second in 10 s");
    terminal.key("q");
    terminal.wait("shell>");
    assert!(gone(pid));
}

/// User and system time in hundredths of a second.
fn cpu(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}
