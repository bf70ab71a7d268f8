"""One module per stage: a plain async function that a Prefect flow or a test calls."""
