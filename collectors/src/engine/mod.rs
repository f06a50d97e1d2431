//! LLM serving engines by their metrics pages: fetch (`scrape`), read ([`exposition`]), translate ([`page`]).

mod aliases;
pub mod exposition;
mod iterations;
pub mod page;
mod scrape;
mod steps;
mod tally;

pub use scrape::Scraper;
pub use steps::name as counter_name;
