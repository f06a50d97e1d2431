//! The real series that noise is made of (`tests/starvebench/noise`, how they were recorded stands beside them).

use std::path::Path;

use gpuprod_sim::{Pool, Recorded};

/// Seconds over which an engine evens out what its clients send: about the time that a request stays in it.
const STAY: usize = 15;

/// Columns of the files, by what they are noise of.
pub(crate) fn load() -> Result<Recorded, String> {
    let host = Csv::read("host.csv")?;
    let (conv, code) = (Csv::read("arrivals_conv.csv")?, Csv::read("arrivals_code.csv")?);
    let pool = |series: Vec<Vec<f64>>| -> Pool {
        series.iter().map(|series| Recorded::residuals(series)).collect::<Vec<_>>().into()
    };
    Ok(Recorded {
        work: pool(vec![
            evened(&conv.column("generated")?),
            evened(&code.column("generated")?),
            host.column("reads_per_s")?,
        ]),
        latency: pool(vec![host.column("read_ms")?]),
        board: pool(vec![host.column("cpu_some")?, host.column("io_some")?]),
    })
}

/// Means over the time that a request stays.
fn evened(series: &[f64]) -> Vec<f64> {
    let count = u32::try_from(STAY).map_or(1.0, f64::from);
    series.windows(STAY).map(|window| window.iter().sum::<f64>() / count).collect()
}

/// A small table.
struct Csv {
    name: String,
    head: Vec<String>,
    rows: Vec<Vec<f64>>,
}

impl Csv {
    #[expect(clippy::disallowed_methods, reason = "the bench's own files")]
    fn read(name: &str) -> Result<Self, String> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("noise").join(name);
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut lines = text.lines();
        let head: Vec<String> = lines.next().unwrap_or_default().split(',').map(ToOwned::to_owned).collect();
        let row = |(at, line): (usize, &str)| -> Result<Vec<f64>, String> {
            let numbers: Result<Vec<f64>, _> = line.split(',').map(str::parse).collect();
            numbers
                .ok()
                .filter(|row| row.len() == head.len() && row.iter().all(|value| value.is_finite()))
                .ok_or_else(|| format!("{}: line {} is not {} numbers", path.display(), at + 2, head.len()))
        };
        let rows = lines.enumerate().map(row).collect::<Result<_, _>>()?;
        Ok(Self { name: name.to_owned(), head, rows })
    }

    fn column(&self, name: &str) -> Result<Vec<f64>, String> {
        let at = self.head.iter().position(|head| head == name).ok_or_else(|| format!("{}: no {name}", self.name))?;
        Ok(self.rows.iter().filter_map(|row| row.get(at).copied()).collect())
    }
}
