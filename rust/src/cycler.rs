//! Objects of Jinja's `cycler` and `joiner`.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;

use minijinja::value::{from_args, Object, ObjectRepr, Value};
use minijinja::{Error, ErrorKind, State};

/// cycler('a', 'b'): next(), reset() and current.
#[derive(Debug)]
pub struct Cycler {
    items: Vec<Value>,
    position: AtomicUsize,
}

impl Cycler {
    /// `items` has at least one.
    pub fn new(items: Vec<Value>) -> Cycler {
        Cycler { items, position: AtomicUsize::new(0) }
    }

    fn at(&self, position: usize) -> Value {
        self.items[position % self.items.len()].clone()
    }
}

impl Object for Cycler {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        (key.as_str() == Some("current")).then(|| self.at(self.position.load(Ordering::Relaxed)))
    }

    fn call_method(
        self: &Arc<Self>, _state: &mut State, method: &str, args: &[Value],
    ) -> Result<Value, Error> {
        let () = from_args(args)?;
        match method {
            "next" => Ok(self.at(self.position.fetch_add(1, Ordering::Relaxed))),
            "reset" => {
                self.position.store(0, Ordering::Relaxed);
                Ok(Value::from(()))
            }
            _ => Err(Error::from(ErrorKind::UnknownMethod)),
        }
    }
}

/// joiner(', '): nothing when first called, then the separator.
#[derive(Debug)]
pub struct Joiner {
    separator: Value,
    used: AtomicBool,
}

impl Joiner {
    pub fn new(separator: Value) -> Joiner {
        Joiner { separator, used: AtomicBool::new(false) }
    }
}

impl Object for Joiner {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn call(self: &Arc<Self>, _state: &mut State, args: &[Value]) -> Result<Value, Error> {
        let () = from_args(args)?;
        let used = self.used.swap(true, Ordering::Relaxed);
        Ok(if used { self.separator.clone() } else { Value::from("") })
    }
}

/// The values that a cycler or joiner holds.
pub fn held(value: &Value) -> Option<&[Value]> {
    if let Some(cycler) = value.downcast_object_ref::<Cycler>() {
        return Some(&cycler.items);
    }
    value.downcast_object_ref::<Joiner>().map(|joiner| std::slice::from_ref(&joiner.separator))
}
