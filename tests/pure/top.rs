//! The screen: what it draws for whom, at every size, of every input.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpuprod::pipeline::{Frame, Pipeline};
use gpuprod::top::{Origin, Over, Player, Playing, Section, Ticks, View, Wish, apply, draw};
use gpuprod_rules::{Policy, UnitId};
use gpuprod_snapshot::units::Nanos;
use gpuprod_snapshot::{Reading, Tick};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;

use crate::node;

const S: fn(u64) -> Nanos = Nanos::from_secs;

fn ticks(scenario: &str) -> Vec<Tick> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/scenarios").join(scenario);
    gpuprod_sim::load(&path).unwrap().ticks().collect()
}

/// A scenario as it stands after so many seconds.
fn at(scenario: &str, seconds: usize) -> View {
    view(ticks(scenario).into_iter().take(seconds + 1), Policy::default())
}

fn view(ticks: impl IntoIterator<Item = Tick>, policy: Policy) -> View {
    let mut pipeline = Pipeline::new(policy);
    let mut view = View { host: "node7".to_owned(), colour: true, ..View::default() };
    view.origin = Some(Origin::Agent("/run/gpuprod/gpuprod.sock".to_owned()));
    for tick in ticks {
        let frame: Frame<'static> = pipeline.feed(&tick).to_owned();
        view.now = frame.known.stamp.clone();
        view.note(&frame);
        view.show(frame);
    }
    view
}

fn drawn(view: &View, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, view)).unwrap();
    terminal.backend().buffer().clone()
}

fn text(buffer: &Buffer) -> String {
    let area = buffer.area;
    let mut out = String::new();
    for y in 0..area.height {
        let line: String = (0..area.width).map(|x| buffer[(x, y)].symbol()).collect();
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Runs of cells that look alike, without their text: `row x..x fg/bg modifiers`.
fn looks(buffer: &Buffer) -> String {
    let area = buffer.area;
    let mut out = String::new();
    for y in 0..area.height {
        let look = |x: u16| {
            let cell = &buffer[(x, y)];
            format!("{}/{} {:?}", cell.fg, cell.bg, cell.modifier)
        };
        let mut begin = 0;
        for x in 1..=area.width {
            if x == area.width || look(x) != look(begin) {
                if look(begin) != "Reset/Reset NONE" {
                    writeln!(out, "{y:>2} {begin:>2}..{x:<2} {}", look(begin)).unwrap();
                }
                begin = x;
            }
        }
    }
    out
}

/// Held against a file of tests/golden/top; GPUPROD_BLESS=1 writes it, to be read before it is committed.
fn golden(name: &str, is: &str) {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/top").join(name);
    if std::env::var_os("GPUPROD_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, is).unwrap();
    }
    let was = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(is == was, "{name} differs (GPUPROD_BLESS=1 writes it):\n{is}\nexpected\n{was}");
}

#[test]
fn the_rebuild_at_two_in_the_morning() {
    let mut view = at("raid_rebuild_serving.scn", 650);
    golden("rebuild_80x24.txt", &text(&drawn(&view, 80, 24)));
    golden("rebuild_80x24.look", &looks(&drawn(&view, 80, 24)));
    golden("rebuild_200x60.txt", &text(&drawn(&view, 200, 60)));
    view.over = Over::Evidence;
    golden("evidence_80x24.txt", &text(&drawn(&view, 80, 24)));
    view.over = Over::Help;
    golden("help_80x24.txt", &text(&drawn(&view, 80, 24)));
    view.over = Over::Nothing;
    view.ascii = true;
    view.colour = false;
    let plain = drawn(&view, 80, 24);
    golden("rebuild_80x24_plain.txt", &text(&plain));
    assert!(text(&plain).is_ascii());
    let coloured = plain.content().iter().filter(|cell| (cell.fg, cell.bg) != (Color::Reset, Color::Reset));
    assert_eq!(coloured.count(), 0, "NO_COLOR");
}

/// A finding's page says what it costs where there is a price: the GPU time that its evidence tells, at that price.
#[test]
fn a_finding_has_its_money_where_there_is_a_price() {
    let mut view = at("raid_rebuild_serving.scn", 650);
    view.over = Over::Evidence;
    assert!(!text(&drawn(&view, 200, 60)).contains("lost: "), "no price, no sum");
    let mut frame = view.frame.take().unwrap();
    let finding = frame.judgement.findings[0].clone();
    let yaml = "prices: [{model: \"*\", per_gpu_hour: 3600, currency: USD}]";
    let list = gpuprod::config::Config::parse(yaml, Path::new("g.yaml")).unwrap().prices;
    let judged = &frame.judgement;
    frame.own.costs = gpuprod::cost::all(&judged.findings, &judged.units, &list, judged.stamp.realtime);
    view.frame = Some(frame);
    // At 3600 an hour a GPU-second is one.
    let seconds = finding.lost.0 / 1_000_000_000;
    assert!(seconds > 10, "{seconds}");
    let page = text(&drawn(&view, 200, 60));
    let line = page.lines().find(|line| line.starts_with(" lost: ")).unwrap_or_else(|| panic!("{page}"));
    assert!(line.contains(&format!("GPU-s so far, {seconds}.")) && line.contains(" USD"), "{line}");
}

#[test]
fn the_numbers_on_the_screen_are_the_readings() {
    let view = at("raid_rebuild_serving.scn", 650);
    let screen = text(&drawn(&view, 80, 24));
    let frame = view.frame.as_ref().unwrap();
    let gpus = &frame.known.gpu.as_ref().unwrap().value.get().unwrap().devices;
    for gpu in gpus {
        let row = screen.lines().find(|line| line.starts_with(&format!(" {} ", gpu.index))).unwrap();
        let watts = gpu.power.copied().unwrap().0 / 1000;
        assert!(row.contains(&format!("{watts} W")) && row.contains("starved storage"), "{row}");
    }
    // The scenario halves the tokens and rebuilds at 180 MB/s.
    assert!(screen.contains("md0 raid5 _UU recover") && screen.contains("180 MB/s"), "{screen}");
    assert!(screen.contains("the rebuild of md0 starves all 8 GPUs since 02:1"), "{screen}");
}

#[test]
fn a_hung_driver_is_unknown_and_never_zero() {
    let view = at("nvml_hang.scn", 540);
    let screen = text(&drawn(&view, 80, 24));
    golden("hang_80x24.txt", &screen);
    assert!(screen.contains("stuck in nvmlDeviceGetPowerUsage") && screen.contains("? power:"), "{screen}");
    // The engine goes on: its tokens stay valid, and no old reading of the board is shown.
    assert!(screen.contains("100 % tokens") && !screen.contains(" W "), "{screen}");
}

#[test]
fn old_frames_are_never_shown_as_live() {
    let mut view = at("serving_healthy.scn", 300);
    assert!(text(&drawn(&view, 80, 24)).contains("live: agent"));
    view.now.boottime = view.now.boottime.saturating_add(S(30));
    view.trouble = Some("ask the agent at /run/gpuprod/gpuprod.sock: no agent listens there".to_owned());
    let screen = text(&drawn(&view, 80, 24));
    golden("stale_80x24.txt", &screen);
    assert!(screen.contains("STALE: last tick 30 s ago") && !screen.contains("live"), "{screen}");
    // Another machine's clock tells nothing: the age counts from when the frame came.
    view.now.boot_id.0 = "another".to_owned();
    view.came = view.now.boottime.saturating_sub(S(2));
    assert_eq!(view.stale(), None);
    view.came = view.now.boottime.saturating_sub(S(9));
    assert_eq!(view.stale(), Some(S(9)));
}

#[test]
fn every_size_and_state_can_be_drawn() {
    let mut views =
        vec![View::default(), at("nvml_hang.scn", 540), at("gpu_lost.scn", 400), at("raid_rebuild_serving.scn", 650)];
    views.push(view([node::full()], Policy::default()));
    for view in &mut views {
        view.playing = Some(Playing::default());
        for over in [Over::Nothing, Over::Help, Over::Evidence] {
            view.over = over;
            for (width, height) in
                [(1, 1), (29, 9), (30, 5), (31, 6), (40, 10), (79, 23), (80, 24), (119, 39), (250, 80)]
            {
                for scroll in [0, 3, usize::MAX] {
                    view.scroll = [scroll; 6];
                    view.over_scroll = scroll;
                    drawn(view, width, height);
                }
            }
        }
    }
}

#[test]
fn hostile_names_move_no_cursor() {
    let evil = "a\x1b[2J\x1b]0;x\x07\r\nb\u{202e}c\u{200f}\t日本\u{301}";
    let mut tick = node::full();
    if let Some(Reading::Value(md)) = tick.md.as_mut().map(|sample| &mut Arc::make_mut(sample).value) {
        md.arrays[0].name = evil.to_owned();
        md.arrays[0].slots = evil.to_owned().into();
        md.arrays[0].level = evil.to_owned().into();
    }
    if let Some(Reading::Value(engines)) = tick.engine.as_mut().map(|sample| &mut Arc::make_mut(sample).value) {
        engines.engines[0].url = format!("http://{evil}");
    }
    if let Some(Reading::Value(block)) = tick.block.as_mut().map(|sample| &mut Arc::make_mut(sample).value) {
        block.devices[0].name = evil.to_owned();
    }
    let mut view = view([tick], Policy::default());
    view.host = evil.to_owned();
    view.trouble = Some(evil.to_owned());
    let frame = view.frame.as_mut().unwrap();
    for unit in &mut frame.judgement.to_mut().units {
        unit.tenant = Some(evil.to_owned());
    }
    let buffer = drawn(&view, 120, 40);
    for cell in buffer.content() {
        let bad = |c: char| c.is_control() || matches!(c, '\u{202e}' | '\u{200f}');
        assert!(!cell.symbol().chars().any(bad), "{:?}", cell.symbol());
    }
    assert!(text(&buffer).contains("a?[2J?]0;x"), "shown, and harmless: {}", text(&buffer));
}

#[test]
fn more_gpus_than_rows_scroll() {
    let mut tick = node::full();
    if let Some(Reading::Value(gpus)) = tick.gpu.as_mut().map(|sample| &mut Arc::make_mut(sample).value) {
        let one = gpus.devices[0].clone();
        gpus.devices = (0..64)
            .map(|index| {
                let mut gpu = one.clone();
                gpu.index = index;
                gpu.uuid = format!("GPU-{index:08}").into();
                gpu.pci = Reading::default();
                gpu
            })
            .collect();
    }
    let mut view = view([tick], Policy::default());
    assert_eq!(view.frame.as_ref().unwrap().judgement.units.len(), 64);
    let first = text(&drawn(&view, 80, 24));
    assert!(first.lines().any(|line| line.starts_with(" 0 ")) && first.contains("below"), "{first}");
    press(&mut view, KeyCode::End);
    let last = text(&drawn(&view, 80, 24));
    assert!(last.lines().any(|line| line.starts_with(" 63 ")) && last.contains("above"), "{last}");
    press(&mut view, KeyCode::Home);
    assert_eq!(text(&drawn(&view, 80, 24)), first);
}

fn press(view: &mut View, code: KeyCode) -> Wish {
    apply(KeyEvent::new(code, KeyModifiers::NONE), view)
}

#[test]
fn keys_do_what_the_help_says() {
    let mut view = at("raid_rebuild_serving.scn", 650);
    assert_eq!(press(&mut view, KeyCode::Char('q')), Wish::Quit);
    assert_eq!(apply(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL), &mut view), Wish::Quit);
    press(&mut view, KeyCode::Char('?'));
    assert_eq!(view.over, Over::Help);
    press(&mut view, KeyCode::Esc);
    press(&mut view, KeyCode::Enter);
    assert_eq!(view.over, Over::Evidence);
    press(&mut view, KeyCode::Char('e'));
    assert_eq!((view.over, view.focus), (Over::Nothing, Section::Gpus));
    press(&mut view, KeyCode::Tab);
    assert_eq!(view.focus, Section::Arrays);
    press(&mut view, KeyCode::BackTab);
    press(&mut view, KeyCode::BackTab);
    assert_eq!(view.focus, Section::Findings);
    for (key, wish) in [
        (KeyCode::Char(' '), Wish::Pause),
        (KeyCode::Char('+'), Wish::Faster),
        (KeyCode::Char('-'), Wish::Slower),
        (KeyCode::Left, Wish::Back(S(10))),
        (KeyCode::Right, Wish::On(S(10))),
        (KeyCode::Char(']'), Wish::On(S(60))),
        (KeyCode::Char('n'), Wish::NextFinding),
    ] {
        assert_eq!(press(&mut view, key), wish);
    }
}

/// Plays until nothing is due; the frame that is shown then. Bounded by the recording's end, not by a clock.
fn settle(player: &mut Player) -> Option<Frame<'static>> {
    let mut last = None;
    loop {
        last = player.advance(true, |_| {}).unwrap().or(last);
        if !player.playing().seeking {
            return last;
        }
    }
}

#[test]
fn a_jump_back_shows_what_was_shown() {
    let story = ticks("raid_rebuild_serving.scn");
    let open = move || Ok(Box::new(story.clone().into_iter().map(Ok)) as Ticks);
    let mut player = Player::new(open, Policy::default(), 1, S(0)).unwrap();
    settle(&mut player);
    player.hunt();
    let found = settle(&mut player).unwrap();
    let subject = |frame: &Frame<'_>| frame.judgement.findings.first().map(|finding| finding.subject.clone());
    assert_eq!(subject(&found).as_deref(), Some("md0"));
    let place = player.playing().position;
    player.on(S(60));
    let later = settle(&mut player).unwrap();
    assert_eq!(player.playing().position, place.saturating_add(S(60)));
    player.back(S(60)).unwrap();
    let again = settle(&mut player).unwrap();
    assert_eq!(player.playing().position, place);
    let json = |frame: &Frame<'_>| serde_json::to_string(frame).unwrap();
    assert_eq!(json(&again), json(&found));
    player.on(S(60));
    assert_eq!(json(&settle(&mut player).unwrap()), json(&later));
    player.on(S(100_000));
    settle(&mut player);
    assert!(player.playing().ended && player.playing().length == Some(player.playing().position));
}

#[test]
fn the_demo_blames_the_array() {
    let page = gpuprod::demo::find(None).unwrap().page().unwrap();
    assert!(page.contains("the rebuild of md0 starves all 8 GPUs"), "{page}");
    assert!(page.contains("critical raid_rebuild_impact/recover md0"), "{page}");
    assert!(page.contains("84 %") && page.contains("lost{storage}"), "{page}");
}

#[test]
fn a_unit_of_the_trail_is_bounded() {
    let mut view = at("serving_healthy.scn", 10);
    let frame = view.frame.as_ref().unwrap().to_owned();
    for _ in 0..2_000 {
        view.note(&frame);
    }
    let unit: &UnitId = &frame.judgement.units[0].unit;
    assert_eq!(view.trail[unit].len(), 600);
}
