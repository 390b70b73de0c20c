"""The report: records, verdicts and figures as one page that stands alone. It reads what others derive and judge."""
