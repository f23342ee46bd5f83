// For clocks_test: a change of the machine's clock ends this wait.
bool Wait() { return mu.AwaitWithTimeout(absl::Condition(&done), absl::Seconds(1)); }
