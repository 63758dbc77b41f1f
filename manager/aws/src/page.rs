//! Lists that AWS answers in pages.

use crate::{Error, Result};

/// The token of a page. `None` requests the first page, and is the token after the last one.
pub type Token = Option<String>;

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// May be empty on any page.
    pub items: Vec<T>,
    pub next: Token,
}

impl<T> Page<T> {
    /// A page that AWS answered with this token. Some actions end a list with an empty token instead of none.
    pub(crate) fn new(items: impl IntoIterator<Item = T>, next: Token) -> Self {
        Self {
            items: items.into_iter().collect(),
            next: next.filter(|token| !token.is_empty()),
        }
    }

    pub(crate) fn map<U>(self, convert: impl FnMut(T) -> U) -> Page<U> {
        Page {
            items: self.items.into_iter().map(convert).collect(),
            next: self.next,
        }
    }
}

/// Reads a list to its last page. `read` requests the page of a token; each page is a call of its own.
///
/// # Errors
/// Those of `read`, and of code `None` when AWS answers with the token that it was sent: the list would never end, and a
/// part of a list must not be taken for all of it.
pub(crate) async fn all<T, F>(operation: &'static str, read: impl Fn(Token) -> F) -> Result<Vec<T>>
where
    F: Future<Output = Result<Page<T>>>,
{
    let mut items = Vec::new();
    let mut token = None;
    loop {
        let page = read(token.clone()).await?;
        items.extend(page.items);

        if page.next.is_none() {
            return Ok(items);
        }
        if page.next == token {
            let message = "AWS returned the same next-page token twice";
            return Err(Error::unusable(operation, message));
        }

        token = page.next;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A list of these pages, whose tokens are their numbers.
    async fn read(pages: &[(&[u32], Option<&str>)]) -> (Result<Vec<u32>>, Vec<Token>) {
        let asked = Mutex::new(Vec::new());
        let answer = all("DescribeThings", |token| {
            let number = token.as_deref().map_or(0, |token| token.parse().unwrap());
            asked.lock().unwrap().push(token);
            let (items, next): (&[u32], Option<&str>) = pages[number];
            let page = Page::new(items.to_vec(), next.map(str::to_owned));
            async move { Ok(page) }
        })
        .await;
        (answer, asked.into_inner().unwrap())
    }

    #[tokio::test]
    async fn a_list_is_read_to_its_last_page_and_an_empty_token_ends_it() {
        let (items, asked) = read(&[(&[1, 2], Some("1")), (&[], Some("2")), (&[3], Some(""))]).await;
        assert_eq!(items.unwrap(), [1, 2, 3]);
        assert_eq!(asked, [None, Some("1".to_owned()), Some("2".to_owned())]);
    }

    #[tokio::test]
    async fn a_token_that_leads_to_itself_is_an_error_and_not_the_end() {
        let (items, asked) = read(&[(&[1], Some("1")), (&[2], Some("1"))]).await;
        assert!(items.unwrap_err().to_string().contains("same next-page token"));
        assert_eq!(asked.len(), 2);
    }
}
