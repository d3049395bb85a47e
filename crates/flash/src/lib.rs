//! Simulated flash: devices in virtual time, and flash translation layers.
