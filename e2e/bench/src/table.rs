//! Markdown tables for the terminal and for `docs/benchmarks.md`, and the numbers in them.

/// A table with an empty line after it; nothing without rows. A column that ends with `:` is aligned to the right.
pub fn table<const N: usize>(columns: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let lines: String = rows.into_iter().map(|row| line(&row)).collect();
    if lines.is_empty() {
        return lines;
    }

    let names = line(&columns.map(|column| column.trim_end_matches(':').to_owned()));
    let alignment = columns.map(|column| if column.ends_with(':') { "---:" } else { "---" });
    format!("{names}|{}|\n{lines}\n", alignment.join("|"))
}

fn line(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

/// With about three significant digits; `–` without a value.
pub fn number(value: impl Into<Option<f64>>) -> String {
    match value.into() {
        None => "–".to_owned(),
        Some(value) if value.abs() < 0.0005 => "0".to_owned(),
        Some(value) if value.abs() < 1.0 => format!("{value:.3}"),
        Some(value) if value.abs() < 10.0 => format!("{value:.2}"),
        Some(value) if value.abs() < 100.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.0}"),
    }
}

/// As [`number`]; empty without a value.
pub fn or_empty(value: Option<f64>) -> String {
    value.map(number).unwrap_or_default()
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub fn count(number: usize) -> f64 {
    number as f64
}

#[expect(clippy::cast_precision_loss, reason = "a process has less than 2^52 KiB")]
pub fn mebibytes(kibibytes: u64) -> f64 {
    kibibytes as f64 / 1024.0
}

/// Whether an aim is met. `None` is one that was not measured.
pub fn verdict(met: Option<bool>) -> String {
    let verdict = met.map_or("not measured", |met| if met { "met" } else { "missed" });
    verdict.to_owned()
}

/// Lines for the end of a report.
pub fn failures(failures: &[String]) -> String {
    failures.iter().map(|failure| format!("FAILED: {failure}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::{number, table};

    #[test]
    fn numbers_have_about_three_digits() {
        let shown = [0.0, 0.1234, 1.234, 12.34, 1234.5].map(number);
        assert_eq!(shown, ["0", "0.123", "1.23", "12.3", "1234"]);
    }

    #[test]
    fn a_table_has_its_alignment_and_is_left_out_without_rows() {
        let columns = ["by", "seconds:"];
        let row = ["a", "1"].map(str::to_owned);
        assert_eq!(table(columns, [row]), "| by | seconds |\n|---|---:|\n| a | 1 |\n\n");
        assert_eq!(table(columns, []), "");
    }
}
