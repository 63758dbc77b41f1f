//! Enough of a shell to find the commands of a line.

/// The commands of a pipeline, as words. Redirections and comments are left out.
pub fn commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(mark), c) if c == mark => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, ' ') => end(&mut commands, &mut word),
            (None, '|' | ';' | '&') => {
                end(&mut commands, &mut word);
                commands.push(Vec::new());
            }
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    end(&mut commands, &mut word);
    assert!(quote.is_none(), "{line}: a quote has no end");

    commands.retain(|words| !words.is_empty());
    commands.iter().map(|words| without_redirections(words)).collect()
}

fn end(commands: &mut [Vec<String>], word: &mut Option<String>) {
    if let (Some(words), Some(word)) = (commands.last_mut(), word.take()) {
        words.push(word);
    }
}

fn without_redirections(words: &[String]) -> Vec<String> {
    let mut kept = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            ">" | "<" => drop(words.next()),
            word if word.starts_with("<<") => {}
            _ => kept.push(word.clone()),
        }
    }
    kept
}
