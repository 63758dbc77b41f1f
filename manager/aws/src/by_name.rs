//! Describes many resources by their names.

use std::collections::BTreeSet;

use crate::{Kind, Result};

/// Describes the resources with these names, at most `most` per call, and returns those that exist.
///
/// If one name of a call is unknown, AWS returns an error and no result for the others. Such a call is split into
/// halves, so that the others are found, and a name counts as unknown only after a call with this name alone.
pub(crate) async fn known<T, A, F>(names: &[String], most: usize, ask: A) -> Result<Vec<T>>
where
    A: Fn(Vec<String>) -> F,
    F: Future<Output = Result<Vec<T>>>,
{
    let mut found = Vec::with_capacity(names.len());
    let mut seen = BTreeSet::new();
    let names: Vec<String> = names.iter().filter(|name| seen.insert(*name)).cloned().collect();
    // The last call first: calls are taken from the end.
    let mut open: Vec<Vec<String>> = names.chunks(most).rev().map(<[String]>::to_vec).collect();

    while let Some(mut part) = open.pop() {
        match ask(part.clone()).await {
            Ok(things) => found.extend(things),
            Err(error) if error.kind() == Kind::NotFound => {
                if part.len() > 1 {
                    let second = part.split_off(part.len().div_ceil(2));
                    open.extend([second, part]);
                }
            }
            Err(error) => return Err(error),
        }
    }

    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::Error;

    fn names(numbers: impl Iterator<Item = u32>) -> Vec<String> {
        numbers.map(|number| number.to_string()).collect()
    }

    /// Asks for the names 0 to 49, of which AWS does not know `gone`, and returns the answer and the number of calls.
    async fn asked(gone: &[&str], also: Option<Error>) -> (Result<Vec<String>>, usize) {
        let calls = Mutex::new(0);
        let answer = known(&names(0..50), 20, |part| {
            *calls.lock().unwrap() += 1;
            let missing = part.iter().any(|name| gone.contains(&name.as_str()));
            let also = also.clone();
            async move {
                match also {
                    Some(error) => Err(error),
                    None if missing => Err(Error::answered("Describe", "LoadBalancerNotFound", "not found")),
                    None => Ok(part),
                }
            }
        })
        .await;
        (answer, calls.into_inner().unwrap())
    }

    #[tokio::test]
    async fn unknown_names_do_not_hide_the_known_ones() {
        assert_eq!(asked(&[], None).await.1, 3);
        let (answer, calls) = asked(&["7", "33"], None).await;
        let known = (0..50).filter(|number| ![7, 33].contains(number));
        assert_eq!(answer.unwrap(), names(known));
        assert!(calls <= 3 + 2 * 2 * 5, "{calls}");
    }

    #[tokio::test]
    async fn only_an_unknown_name_counts_as_unknown() {
        for code in ["AccessDenied", "Throttling", "InternalFailure"] {
            let (answer, calls) = asked(&[], Some(Error::answered("Describe", code, ""))).await;
            assert_eq!((answer.unwrap_err().code(), calls), (Some(code), 1));
        }
    }

    #[tokio::test]
    async fn a_name_that_stands_twice_is_asked_for_once() {
        let twice = ["a".to_owned(), "a".to_owned()];
        let answer = known(&twice, 20, |part| async move { Ok(part) }).await;
        assert_eq!(answer.unwrap(), ["a"]);
    }
}
