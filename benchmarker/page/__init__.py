"""The report: a self-contained page of records, verdicts and figures, which other packages derive and judge."""
