// Errors of the torch-free layers. Every message says what was wrong and the offending value; the
// engine above adds the rank, the bucket and the stage.
#pragma once

#include <stdexcept>
#include <string>

namespace zen {

// Base of everything thrown on purpose by core and schemes.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A caller broke a documented precondition (a size, an option, an unsupported dtype).
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

// Bytes from another rank are not a message this rank can accept.
class MalformedMessage : public Error {
 public:
  using Error::Error;
};

// The group cannot go on: a peer is dead, late or disagrees about the bucket.
class TransportError : public Error {
 public:
  using Error::Error;
};

// The ranks mean different things by the same bucket. Every rank sees it alike.
class Disagreement : public TransportError {
 public:
  using TransportError::TransportError;
};

}  // namespace zen
