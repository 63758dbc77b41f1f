//! XML answers as a small tree, for reading them and for the few that the proxy corrects. Enough for AWS's answers:
//! an element has children or text, never both mixed.

use std::fmt::Write;

use quick_xml::Reader;
use quick_xml::escape::{escape, partial_escape, resolve_predefined_entity};
use quick_xml::events::{BytesRef, BytesStart, Event};
use thiserror::Error;

/// The text is not the XML that AWS sends.
#[derive(Debug, Error)]
#[error("not the XML of an AWS answer: {reason}; it begins with {beginning:?}")]
pub struct XmlError {
    reason: String,
    beginning: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Element {
    /// The name as written, prefix included.
    pub name: String,
    pub attributes: Vec<(String, String)>,
    /// The text, unescaped; empty where there are children.
    pub text: String,
    pub children: Vec<Element>,
}

impl Element {
    pub fn text(name: &str, text: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            text: text.into(),
            ..Self::default()
        }
    }

    pub fn parent(name: &str, children: impl IntoIterator<Item = Self>) -> Self {
        Self {
            name: name.to_owned(),
            children: children.into_iter().collect(),
            ..Self::default()
        }
    }

    /// # Errors
    /// [`XmlError`] for anything but one well-formed element.
    pub fn parse(document: &str) -> Result<Self, XmlError> {
        parse(document).map_err(|reason| XmlError {
            reason,
            beginning: document.chars().take(120).collect(),
        })
    }

    /// The first child of this name.
    pub fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.name == name)
    }

    pub fn child_mut(&mut self, name: &str) -> Option<&mut Self> {
        self.children.iter_mut().find(|child| child.name == name)
    }

    /// The first element on a path of names below this one.
    pub fn at(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |element, name| element.child(name))
    }

    /// The text of a child; empty when there is none.
    pub fn value(&self, name: &str) -> &str {
        self.child(name).map_or("", |child| child.text.as_str())
    }

    /// The first element of this name, this one included, depth first.
    pub fn find(&self, name: &str) -> Option<&Self> {
        if self.name == name {
            return Some(self);
        }
        self.children.iter().find_map(|child| child.find(name))
    }

    pub fn find_mut(&mut self, name: &str) -> Option<&mut Self> {
        if self.name == name {
            return Some(self);
        }
        self.children.iter_mut().find_map(|child| child.find_mut(name))
    }

    /// The children of the first child of this name.
    pub fn list(&self, name: &str) -> &[Self] {
        self.child(name).map_or(&[], |list| &list.children)
    }

    /// The children of the first element of this name, depth first: the items of one of AWS's lists.
    pub fn items(&self, name: &str) -> &[Self] {
        self.find(name).map_or(&[], |list| &list.children)
    }

    pub fn document(&self) -> String {
        let mut out = r#"<?xml version="1.0" encoding="UTF-8"?>"#.to_owned();
        out.push('\n');
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) {
        out.push('<');
        out.push_str(&self.name);
        for (key, value) in &self.attributes {
            let _ = write!(out, " {key}=\"{}\"", escape(value)); // writing into a String cannot fail
        }

        out.push('>');
        out.push_str(&partial_escape(&self.text));
        for child in &self.children {
            child.write(out);
        }

        let _ = write!(out, "</{}>", self.name);
    }
}

fn parse(document: &str) -> Result<Element, String> {
    let mut reader = Reader::from_str(document);
    let mut open: Vec<Element> = vec![Element::default()];
    loop {
        match reader.read_event().map_err(|error| error.to_string())? {
            Event::Start(start) => open.push(begin(&start)?),
            Event::Empty(start) => close(&mut open, begin(&start)?)?,
            Event::End(_) => {
                let element = open.pop().ok_or("an end without a start")?;
                close(&mut open, element)?;
            }
            Event::Text(text) => last(&mut open)?.text.push_str(&text),
            Event::CData(text) => last(&mut open)?.text.push_str(&text),
            Event::GeneralRef(reference) => {
                let character = resolve(&reference)?;
                last(&mut open)?.text.push_str(&character);
            }
            Event::Eof => break,
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) => {}
        }
    }

    let mut document = open
        .pop()
        .filter(|_| open.is_empty())
        .ok_or("an element without an end")?;
    document
        .children
        .pop()
        .filter(|_| document.children.is_empty())
        .ok_or_else(|| "not one root element".to_owned())
}

fn begin(start: &BytesStart<'_>) -> Result<Element, String> {
    let mut element = Element {
        name: start.name().as_ref().to_owned(),
        ..Element::default()
    };
    for attribute in start.attributes() {
        let attribute = attribute.map_err(|error| error.to_string())?;
        let value = quick_xml::escape::unescape(&attribute.value)
            .map_err(|error| error.to_string())?
            .into_owned();
        element.attributes.push((attribute.key.as_ref().to_owned(), value));
    }

    Ok(element)
}

/// Hangs a complete element under its parent. Blanks between elements are layout, not text.
fn close(open: &mut [Element], mut element: Element) -> Result<(), String> {
    if !element.children.is_empty() {
        element.text.clear();
    }
    last(open)?.children.push(element);
    Ok(())
}

fn last(open: &mut [Element]) -> Result<&mut Element, String> {
    open.last_mut().ok_or_else(|| "text outside of any element".to_owned())
}

fn resolve(reference: &BytesRef<'_>) -> Result<String, String> {
    if let Some(character) = reference.resolve_char_ref().map_err(|error| error.to_string())? {
        return Ok(character.to_string());
    }
    resolve_predefined_entity(reference)
        .map(str::to_owned)
        .ok_or_else(|| format!("unknown entity {}", &**reference))
}

#[cfg(test)]
mod tests {
    use super::Element;

    #[test]
    fn a_document_survives_reading_and_writing() {
        let document = "<?xml version=\"1.0\"?>\n<A xmlns=\"http://x/?a=1&amp;b=2\">\n  <B>a &lt; b &amp;&#39; c</B>\n <C/>\n</A>\n";
        let element = Element::parse(document).expect("well-formed");
        assert_eq!(element.value("B"), "a < b &' c");
        assert_eq!(
            element.attributes,
            [("xmlns".to_owned(), "http://x/?a=1&b=2".to_owned())]
        );
        assert_eq!(Element::parse(&element.document()).expect("ours"), element);
    }

    #[test]
    fn what_is_not_one_element_is_refused() {
        for document in ["", "hello", "<A>", "<A></B>", "<A/><B/>", "<A>&nope;</A>"] {
            assert!(Element::parse(document).is_err(), "{document}");
        }
    }

    #[test]
    fn a_list_is_found_wherever_it_is() {
        let element =
            Element::parse("<R><S><instancesSet><item><instanceId>i-1</instanceId></item></instancesSet></S></R>")
                .expect("ok");
        assert_eq!(element.items("instancesSet")[0].value("instanceId"), "i-1");
        assert!(element.items("none").is_empty());
    }
}
